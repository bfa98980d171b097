"""Whether a checkpoint can go on under a plan: layout, samples, model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.plan.types import Model, Plan
from dsforge.records.checkpoint import CheckpointManifest, NotWhole, ParameterEntry
from dsforge.train.blend import whole_weights
from dsforge.train.parameters import model_parameters

ORDER_KEYS = {"seed": "train.seed", "seq_len": "batch.seq_len", "weights": "data.train: weights"}
"""Recipe keys that facts of the order of samples are told by."""
DataFacts = Mapping[str, str | int]
_FREE = frozenset({"name", "init_std", "padded_vocab", "max_positions", "hf_config"})
"""Of a plan's model what a trained one no longer asks for, or what its shapes and layout tell."""
_FREE_OF_CONFIG = frozenset({"initializer_range", "bos_token_id", "eos_token_id"})
"""The same of a Hugging Face config."""
_CONFIG = "hf_config."
_UNSET = "not set"
_UNWRITTEN = {"vp": 1, "cp": 1, "ep": 1, "fp16": 0}
"""Facts of a layout that stand in a manifest only where they are something else."""
_DEGREES = ("tp", "pp", "vp", "cp", "ep", "dp", "zero")
"""In this order a message names the first that differs: DP follows from the others."""
_STATES = "_states"
_WRITTEN = ("trainer", "train", "optimizer", "batch")
"""Sections whose values of a checkpoint the recipe itself says."""


def layout_facts(plan: Plan) -> dict[str, int]:
    """Return what must be equal for the engine's own files to fit: degrees, ZeRO, stages, optimizer."""
    layout = plan.layout
    facts = {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "zero": layout.zero}
    facts["bf16"] = int(plan.train.precision == "bf16")
    if plan.train.precision == "fp16":
        facts["fp16"] = 1
    if plan.optimizer.type != "adamw":
        facts[f"{plan.optimizer.type}{_STATES}"] = 1
    if plan.offload.path is not None:
        facts["states_on_disk"] = 1
    if layout.vp > 1:
        facts["vp"] = layout.vp
    if layout.cp > 1:
        facts["cp"] = layout.cp
    if layout.ep > 1:
        facts["ep"] = layout.ep
    facts |= {f"layers_of_stage_{stage.stage}": stage.layers for stage in layout.stages}
    return facts


def layout_difference(manifest: CheckpointManifest, plan: Plan) -> str | None:
    """Return how the layout that a checkpoint was saved with differs from the plan's, or None.

    Where replicas shard no states, with ZeRO-0 and no pipeline, there may be another number of them; where a
    trainer's files are rows of whole tensors, whatever the stage, another stage, too.
    """
    saved, planned = (_by_key({**_UNWRITTEN, **facts}) for facts in (manifest.layout, layout_facts(plan)))
    unsharded = all((one.get("parallel.zero"), one.get("parallel.pp")) == (0, 1) for one in (saved, planned))
    free = {"parallel.dp"} if unsharded else set()
    if capabilities(plan.trainer).cuts_parameters:
        free = {"parallel.dp", "parallel.zero"}
    for key in (*planned, *sorted(saved.keys() - planned.keys())):
        if planned.get(key) != saved.get(key) and key not in free:
            return differs(key, saved.get(key), planned.get(key))
    return None


def _by_key(facts: Mapping[str, int]) -> dict[str, Any]:
    """Return facts of a layout by recipe key, what others follow from first."""
    left = dict(facts)
    told: dict[str, Any] = {f"parallel.{name}": left.pop(name, None) for name in _DEGREES}
    found = [name for name in ("bf16", "fp16") if left.pop(name, 0)]
    told["train.precision"] = found[0] if found else "fp32"
    types = [name for name in left if name.endswith(_STATES) and left[name]]
    told["optimizer.type"] = types[0].removesuffix(_STATES) if types else "adamw"
    told["offload.path"] = "a disk" if left.pop("states_on_disk", 0) else "none"
    return told | {name.replace("_", " "): left[name] for name in sorted(left.keys() - set(types))}


def differs(key: str, was: Any, now: Any) -> str:
    """Return in words that a value, by recipe key where it has one, is another than a checkpoint's.

    Where `auto` may stand, and of what follows from others, it is the plan that says it.
    """
    who = "recipe" if key.partition(".")[0] in _WRITTEN else "plan"
    return f"{key} was {_word(was)}, the {who} says {_word(now)}"


def _word(value: Any) -> str:
    return "none" if value is None else json.dumps(value, sort_keys=True).strip('"')


def model_facts(plan: Plan) -> dict[str, Any]:
    """Return what must be equal for the same weights to be the same function."""
    config = plan.model.hf_config or {}
    return plan.model.model_dump(mode="json", exclude=set(_FREE)) | {
        f"{_CONFIG}{key}": config[key] for key in sorted(config.keys() - _FREE_OF_CONFIG)
    }


def model_difference(manifest: CheckpointManifest, plan: Plan) -> str | None:
    """Return how a checkpoint's model differs from the plan's, or None."""
    planned = model_facts(plan)
    for fact in (*planned, *sorted(manifest.model.keys() - planned.keys())):
        was, now = (_value(facts, fact) for facts in (manifest.model, planned))
        if was != now:
            config = fact.removeprefix(_CONFIG)
            name = f"model.{fact}" if config == fact else f"{config} of config.json"
            return differs(*_leaf(name, was, now))
    saved = {entry.name: entry for entry in manifest.parameters}
    for entry in parameter_entries(plan):
        was_entry = saved.get(entry.name)
        if was_entry != entry:
            shape = was_entry.shape if was_entry is not None else "not there"
            return f"{entry.name} was {shape}, the plan says {entry.shape}"
    return None


def _value(facts: Mapping[str, Any], fact: str) -> Any:
    """Return a fact as JSON holds it; what a checkpoint of an older build does not say had no choice."""
    if fact in facts:
        return facts[fact]
    field = Model.model_fields.get(fact)
    return _UNSET if field is None or field.is_required() else field.default


def _leaf(name: str, was: Any, now: Any) -> tuple[str, Any, Any]:
    """Return the first value that differs by its dotted name, and both sides of it."""
    sides = [side if isinstance(side, dict) else {} for side in (was, now)]
    for key in {**sides[1], **sides[0]}:
        one, other = (side.get(key) for side in sides)
        if one != other:
            return _leaf(f"{name}.{key}", one, other)
    return name, was, now


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
                f"{differs(ORDER_KEYS[fact], manifest.data.get(fact), planned)}",
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
