"""Whether a checkpoint can go on under a plan: layout, samples, model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.plan.types import Plan
from dsforge.records.checkpoint import CheckpointManifest, NotWhole, ParameterEntry
from dsforge.train.blend import whole_weights
from dsforge.train.parameters import model_parameters

DataFacts = Mapping[str, str | int]
_FREE = frozenset({"name", "init_std", "padded_vocab", "max_positions", "hf_config"})
"""Of a plan's model what a trained one no longer asks for, or what its shapes and layout tell."""
_FREE_OF_CONFIG = frozenset({"initializer_range", "bos_token_id", "eos_token_id"})
"""The same of a Hugging Face config."""
_UNWRITTEN = {"vp": 1, "ep": 1, "fp16": 0}
"""Facts of a layout that stand in a manifest only where they are something else."""


def layout_facts(plan: Plan) -> dict[str, int]:
    """Return what must be equal for the engine's own files to fit: degrees, ZeRO, stages, optimizer."""
    layout = plan.layout
    facts = {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "zero": layout.zero}
    facts["bf16"] = int(plan.train.precision == "bf16")
    if plan.train.precision == "fp16":
        facts["fp16"] = 1
    if plan.optimizer.type != "adamw":
        facts[f"{plan.optimizer.type}_states"] = 1
    if plan.offload.optimizer == "nvme":
        facts["states_on_disk"] = 1
    if layout.vp > 1:
        facts["vp"] = layout.vp
    if layout.ep > 1:
        facts["ep"] = layout.ep
    facts |= {f"layers_of_stage_{stage.stage}": stage.layers for stage in layout.stages}
    return facts


def layout_difference(manifest: CheckpointManifest, plan: Plan) -> str | None:
    """Return how the layout that a checkpoint was saved with differs from the plan's, or None.

    Where replicas shard no states, with ZeRO-0 and no pipeline, there may be another number of them.
    """
    saved, planned = ({**_UNWRITTEN, **facts} for facts in (manifest.layout, layout_facts(plan)))
    unsharded = (saved.get("zero"), saved.get("pp"), planned["zero"], planned["pp"]) == (0, 1, 0, 1)
    for fact in sorted(planned.keys() | saved.keys()):
        if planned.get(fact) != saved.get(fact) and not (fact == "dp" and unsharded):
            return f"{fact} was {saved.get(fact)}, the plan says {planned.get(fact)}"
    return None


def model_facts(plan: Plan) -> dict[str, Any]:
    """Return what must be equal for the same weights to be the same function."""
    config = plan.model.hf_config or {}
    return plan.model.model_dump(mode="json", exclude=set(_FREE)) | {
        f"hf_config.{key}": config[key] for key in sorted(config.keys() - _FREE_OF_CONFIG)
    }


def model_difference(manifest: CheckpointManifest, plan: Plan) -> str | None:
    """Return how a checkpoint's model differs from the plan's, or None."""
    planned = model_facts(plan)
    for fact in (*planned, *sorted(manifest.model.keys() - planned.keys())):
        was, now = (_shown(facts, fact) for facts in (manifest.model, planned))
        if was != now:
            return f"{fact} was {was}, the plan says {now}"
    saved = {entry.name: entry for entry in manifest.parameters}
    for entry in parameter_entries(plan):
        was_entry = saved.get(entry.name)
        if was_entry != entry:
            shape = was_entry.shape if was_entry is not None else "not there"
            return f"{entry.name} was {shape}, the plan says {entry.shape}"
    return None


def _shown(facts: Mapping[str, Any], fact: str) -> str:
    return json.dumps(facts[fact], sort_keys=True).strip('"') if fact in facts else "not set"


def order_facts(plan: Plan) -> dict[str, str | int]:
    """Return what of a plan alone decides which samples a step takes; equal ratios are equal weights."""
    weights = whole_weights([one.weight for one in plan.data.train] or [1.0])
    return {
        "seed": plan.train.seed,
        "seq_len": plan.batch.seq_len,
        "weights": ":".join(map(str, weights)),
    }


def data_facts(plan: Plan, tokens: int, fingerprint: str) -> dict[str, str | int]:
    """Return what must be equal for the next sample ids to mean the next samples.

    `corpus` alone is there to be read: the same data at another place are the same data.
    """
    named = ", ".join(one.prefix for one in plan.data.train)
    return {
        "corpus": named or f"built-in corpus, vocabulary {plan.data.builtin_vocab}",
        "tokens": tokens,
        "fingerprint": fingerprint,
        **order_facts(plan),
    }


def parameter_entries(plan: Plan) -> tuple[ParameterEntry, ...]:
    """Return every parameter of the model for the manifest."""
    return tuple(
        ParameterEntry(spec.name, spec.shape, spec.partition_dim, spec.partition_stride)
        for spec in model_parameters(plan.model)
    )


def check_fits(manifest: CheckpointManifest, plan: Plan, data: DataFacts, folder: Path) -> None:
    """Compare a checkpoint with the plan and data that go on from it; DsforgeError names what differs."""
    if manifest.trainer != plan.trainer:
        raise _misfit(
            "DSF331",
            f"the checkpoint was saved by the trainer {manifest.trainer}, the plan says {plan.trainer}",
            "resume with the trainer that it was saved by, or name another checkpoint.dir",
            folder,
        )
    if (difference := layout_difference(manifest, plan)) is not None:
        raise _misfit(
            "DSF331",
            f"the checkpoint has another layout: {difference}",
            "resume under the layout that it was saved with, or name another checkpoint.dir",
            folder,
        )
    if manifest.consumed_samples != manifest.step * plan.batch.global_size:
        raise _misfit(
            "DSF332",
            f"the checkpoint has consumed {manifest.consumed_samples} samples in {manifest.step} steps, "
            f"which is not {plan.batch.global_size} a step",
            "keep batch.global: samples would repeat or be left out",
            folder,
        )
    _check_data(manifest, plan, data, folder)
    difference = model_difference(manifest, plan)
    if difference is not None:
        raise _misfit(
            "DSF333",
            f"the checkpoint is of another model: {difference}",
            "name another checkpoint.dir, or resume with the model it was saved from",
            folder,
        )


def _check_data(manifest: CheckpointManifest, plan: Plan, data: DataFacts, folder: Path) -> None:
    for fact, planned in order_facts(plan).items():
        if manifest.data.get(fact) != planned:
            raise _misfit(
                "DSF332",
                "the checkpoint has consumed other samples: "
                f"{fact} was {manifest.data.get(fact)}, the plan says {planned}",
                "keep it: another order of samples would repeat some and leave others out",
                folder,
            )
    if any(manifest.data.get(fact) != data[fact] for fact in ("tokens", "fingerprint")):
        was, now = manifest.data.get("tokens"), data["tokens"]
        how = f"{was} tokens then, {now} now" if was != now else f"{now} tokens, but not the same ones"
        raise _misfit(
            "DSF337",
            f"the checkpoint was trained on other data ({manifest.data.get('corpus')}) than lie at "
            f"{data['corpus']}: {how}",
            "put back the data it was trained on, or start anew with another checkpoint.dir",
            folder,
        )


def not_whole(folder: Path, fault: NotWhole) -> DsforgeError:
    """Return the error for a checkpoint that cannot be gone on from."""
    return DsforgeError(
        "DSF334",
        f"the checkpoint {folder.name} is not whole: {fault.file.name} {fault.reason}",
        Place(file=str(fault.file)),
        f"move {folder.name} away, or go on from an older one in a new folder: "
        "checkpoint.resume=PATH checkpoint.dir=NEW",
        ExitCode.BEFORE_FIRST_STEP,
    )


def _misfit(code: str, message: str, hint: str, folder: Path) -> DsforgeError:
    return DsforgeError(code, message, Place(file=str(folder)), hint, ExitCode.BEFORE_FIRST_STEP)
