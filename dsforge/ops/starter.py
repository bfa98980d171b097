"""A starter recipe whose layout fits: the smallest TP x PP that holds model states and fp32 sums."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, inf
from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Severity
from dsforge.base.exits import ExitCode
from dsforge.catalog.tables import Hardware, ModelPreset, find_hardware, find_model
from dsforge.plan.auto import ROOM_FOR_STATES
from dsforge.plan.resolve import examine, make_plan, refusal
from dsforge.plan.verdict import memory_findings
from dsforge.recipe.document import Document
from dsforge.recipe.load import LoadedRecipe, check
from dsforge.recipe.schema import editor_header

_TIGHT = 0.8
"""The largest share of a GPU for model states and fp32 sums of gradients, taken where no layout leaves as
much room as the planner likes; the rest is left to activations, which recomputation keeps small."""
_ROOMY = 0.5
"""The largest share that leaves room for activations as they are; above it, layers are recomputed."""
_GATHERS_WEIGHTS = 3
_MAX_PP = 64
_SEQ_LEN = 4096
_UNTRAINABLE = "DSF141"
"""No layout mends this finding, so it is told instead of a search that finds none."""


def starter_recipe(
    model: str,
    gpus: int,
    gpus_per_node: int,
    gpu: str,
    schema: str = "recipe.schema.json",
    seq_len: int | None = None,
) -> str:
    """Return a recipe as YAML; DsforgeError DSF065 when no layout of these GPUs holds the model.

    DSF141 when no trainer builds it, a rule's code when it takes no samples of `seq_len` tokens; else the
    first one that does is written. `schema` is where editors look for the JSON Schema, from its folder.
    """
    preset, hardware = find_model(model), find_hardware(gpu)
    nodes, per_node = whole_nodes(gpus, gpus_per_node)
    limits = (preset.shape.get("max_positions"), preset.shape.get("window"))
    seq_len = seq_len or min((_SEQ_LEN, *(limit for limit in limits if limit)))
    first: dict[str, Any] = {
        "version": 1,
        "model": preset.name,
        "cluster": {"nodes": nodes, "gpus_per_node": per_node, "gpu": hardware.name},
        "batch": {"global": gpus, "micro": 1, "seq_len": seq_len},
        "train": {"precision": _precision(hardware)},
    }
    first |= _trainer(first)
    if too_long := [found for found in examine(_loaded(first)) if found.key == "batch.seq_len"]:
        raise refusal(too_long)
    tight: list[tuple[dict[str, Any], tuple[str, str]]] = []
    for recomputed in (False, True):
        for data, again, is_roomy in _fitting(first, preset, hardware, recomputed=recomputed):
            if is_roomy:
                return _text(data, again, schema)
            tight.append((data, again))
    if tight:
        return _text(*tight[0], schema)
    raise DsforgeError(
        "DSF065",
        f"no TP x PP of {gpus} x {hardware.name} holds the states and fp32 sums of {preset.name} in "
        f"{_TIGHT:.0%} of a GPU, and the activations in the rest",
        hint="more GPUs, a smaller model or shorter samples",
        exit_code=ExitCode.FINDINGS,
    )


def _fitting(
    first: dict[str, Any], preset: ModelPreset, hardware: Hardware, *, recomputed: bool
) -> Iterator[tuple[dict[str, Any], tuple[str, str], bool]]:
    """Yield layouts that may fit, the smallest first, what is recomputed and why, and whether there is room.

    `recomputed`: all layers, where none fits otherwise.
    """
    per_node = first["cluster"]["gpus_per_node"]
    gpus = first["cluster"]["nodes"] * per_node
    experts = (preset.shape.get("experts") or {}).get("count", 1)
    for tp, pp, ep in _layouts(gpus, per_node, experts):
        dp = gpus // (tp * pp)
        data = {
            **first,
            "parallel": {"tp": tp, "pp": pp, **({"ep": ep} if ep > 1 else {})},
            "batch": {**first["batch"], "global": dp * (4 * pp if pp > 1 else 4)},
        }
        share = _share_of_memory(data, hardware.memory_bytes)
        again = ("full", "activations do not fit otherwise") if recomputed else _recompute(share)
        if share is None:
            yield data, again, True
        elif share <= _TIGHT:
            said = _said_of_memory(data, again[0])
            if Severity.ERROR not in said:
                yield data, again, share <= ROOM_FOR_STATES and not said


def whole_nodes(gpus: int, gpus_per_node: int) -> tuple[int, int]:
    """Return (nodes, GPUs of each); DsforgeError DSF063 when the GPUs are not whole nodes."""
    per_node = min(gpus, gpus_per_node)
    nodes, rest = divmod(gpus, per_node)
    if rest:
        raise DsforgeError(
            "DSF063", f"{gpus} GPUs are not whole nodes of {per_node}", hint="a multiple of the node"
        )
    return nodes, per_node


def _precision(hardware: Hardware) -> str:
    """Return what an accelerator trains in."""
    if hardware.accelerator == "cpu":
        return "fp32"
    return "bf16" if hardware.multiplies_in("bf16") else "fp16"


def _layouts(gpus: int, per_node: int, experts: int) -> Iterator[tuple[int, int, int]]:
    """Yield (tp, pp, ep) from the least model parallelism to the most, TP inside a node first.

    Experts are shared out over as many ranks of a node as they can be, or not at all.
    """
    degrees = [
        (tp, pp)
        for tp in range(1, per_node + 1)
        if per_node % tp == 0
        for pp in range(1, min(_MAX_PP, gpus // tp) + 1)
        if gpus % (tp * pp) == 0
    ]
    for tp, pp in sorted(degrees, key=lambda pair: (pair[0] * pair[1], pair[1])):
        ep = gcd(experts, per_node // tp, gpus // (tp * pp))
        yield from ((tp, pp, one) for one in sorted({ep, 1}, reverse=True))


def _trainer(data: dict[str, Any]) -> dict[str, str]:
    """Return the trainer to name, none where the default one builds the model; DsforgeError DSF141."""
    untrainable = [found for found in examine(_loaded(data)) if found.code == _UNTRAINABLE]
    if not untrainable:
        return {}
    fix = untrainable[0].fix
    if fix is None or fix.key != "trainer":
        raise refusal(untrainable)
    return {fix.key: fix.value}


def _loaded(data: dict[str, Any]) -> LoadedRecipe:
    document = Document(data=data)
    return LoadedRecipe(check(document), Path("recipe.yaml"), "", document)


def _share_of_memory(data: dict[str, Any], memory_bytes: int | None) -> float | None:
    """Return the share of a GPU that states and fp32 sums of the fullest rank take.

    Infinite for a layout to pass over, None where the memory is not catalogued.
    """
    loaded = _loaded(data)
    if any(found.severity is Severity.ERROR for found in examine(loaded)):
        return inf
    layout = make_plan(loaded).layout
    if layout.zero == _GATHERS_WEIGHTS:
        return inf  # every pass gathers every weight; splitting the model further is the faster start
    return layout.fullest_rank_bytes / memory_bytes if memory_bytes else None


def _said_of_memory(data: dict[str, Any], recompute: str) -> list[Severity]:
    """Return how what is said of the whole of what a rank holds weighs, with the recomputation written."""
    loaded = _loaded({**data, "train": {**data["train"], "recompute": recompute}})
    return [one.severity for one in memory_findings(loaded, make_plan(loaded))]


def _recompute(share: float | None) -> tuple[str, str]:
    """Return the value of `train.recompute` and why."""
    if share is None:
        return (
            "none",
            "this machine's memory is not catalogued; full holds fewer activations, and takes longer",
        )
    taken = f"model states and fp32 sums take {share:.0%} of a GPU"
    if share <= _ROOMY:
        return "none", f"{taken}; full if activations do not fit the rest"
    return "full", f"{taken}: the rest holds few activations"


def _text(data: dict[str, Any], again: tuple[str, str], schema: str) -> str:
    def flow(section: dict[str, Any]) -> str:
        return "{" + ", ".join(f"{key}: {value}" for key, value in section.items()) + "}"

    recompute, why = again
    trainer = f"trainer: {data['trainer']}\n" if "trainer" in data else ""
    reach = ""
    if data["cluster"]["nodes"] > 1:
        reach = "# launch: {launcher: slurm}    # or cluster.hostfile: the hosts, reached over pdsh and ssh\n"
    return f"""{editor_header(schema)}\
# `dsforge validate` checks this file, `dsforge plan` shows what follows from it,
# `dsforge smoke` tries its layout on this machine, `dsforge launch` runs it.
version: 1
{trainer}model: {data["model"]}
cluster: {flow(data["cluster"])}
parallel: {flow(data["parallel"])}    # dp and zero: left to the planner
batch: {flow(data["batch"])}    # global = micro x accumulation steps x DP, exactly
# recompute {recompute}: {why}
train: {{steps: 1000, precision: {data["train"]["precision"]}, recompute: {recompute}}}
optimizer: {{lr: 3.0e-4, lr_schedule: cosine, warmup_steps: 100, grad_clip: 1.0}}
# data: {{train: data/corpus}}    # made by `dsforge data prep`; without it: the built-in corpus
checkpoint: {{dir: checkpoints/{data["model"]}, every_steps: 200, keep: 3, resume: auto}}
{reach}"""
