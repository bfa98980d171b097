"""How `dsforge plan` shows the memory of a plan: a verdict, numbers, bars, and edits that make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dsforge.base.errors import Finding
from dsforge.base.units import format_bytes
from dsforge.cli import output

if TYPE_CHECKING:
    from dsforge.cost.memory import StageMemory
    from dsforge.plan.memory import MemoryEstimate
    from dsforge.plan.mending import MemoryEdit
    from dsforge.plan.types import Plan
    from dsforge.recipe.load import LoadedRecipe

_PARTS = {
    "w": ("weights", ("weights",)),
    "g": ("gradients and their sums", ("gradients", "sums")),
    "o": ("optimizer", ("optimizer",)),
    "b": ("buffers", ("standing", "gathered")),
    "a": ("activations", ("activations",)),
    "l": ("loss, or a layer's backward", ("logits", "working")),
}
"""By letter: the name of a part of a bar, and the components in it."""
_REST = ("r", "reserve, CUDA and NCCL")
_COLUMNS = ("stage", "layers", *(name for name, _ in _PARTS.values()), "peak", "reserved", "nvidia-smi")
_ALL_SHOWN = 8
_FIRST, _LAST = 3, 2
"""Stages that are shown of more than that: the middle ones differ by a micro-batch each."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A plan's estimated memory, or why there is none, and the edits that make it fit."""

    estimate: MemoryEstimate | str
    edits: list[MemoryEdit]

    def to_json_value(self) -> dict[str, Any]:
        """Return the JSON-ready mapping."""
        if isinstance(self.estimate, str):
            return {"why": self.estimate}
        return {**self.estimate.to_json_value(), "edits": [asdict(edit) for edit in self.edits]}

    def findings(self, loaded: LoadedRecipe, plan: Plan) -> list[Finding]:
        """Return what the verdict has to say."""
        from dsforge.plan.verdict import memory_findings

        return memory_findings(loaded, plan, (self.estimate, self.edits))

    def show(self) -> None:
        """Print it."""
        estimate = self.estimate
        if isinstance(estimate, str):
            return
        error = f"published runs: within {estimate.errors['device']:.0%} on average"
        output.line(f"Memory of one rank, estimated like {estimate.engine} ({error})")
        shown = list(_shown(estimate.stages))
        output.table("", _COLUMNS, [_numbers(stage) for stage in shown])
        widest = max(estimate.capacity_bytes or 0, estimate.fullest.device)
        legend = {letter: name for letter, (name, _) in _PARTS.items()} | dict([_REST])
        rows = [(f"stage {stage.stage}", _lengths(stage), format_bytes(stage.device)) for stage in shown]
        output.bars(rows, legend, widest, estimate.capacity_bytes)
        output.line(f"  {_sum(estimate)}")


def memory_of(loaded: LoadedRecipe, plan: Plan) -> Memory:
    """Return what a plan takes, and where it may not fit what would make it."""
    from dsforge.plan.verdict import memory_with_edits

    return Memory(*memory_with_edits(loaded, plan))


def _sum(estimate: MemoryEstimate) -> str:
    fullest, capacity = estimate.fullest, estimate.capacity_bytes
    most = f"the fullest rank, of stage {fullest.stage}, takes {format_bytes(fullest.device)}"
    off = ""
    if fullest.host_bytes or fullest.nvme_bytes:
        host = f"{format_bytes(fullest.host_bytes)} of a node's memory"
        disks = f" and {format_bytes(fullest.nvme_bytes)} of its disks" if fullest.nvme_bytes else ""
        off = f", besides {host}{disks}"
    if capacity is None or estimate.margin_bytes is None:
        return most + off
    share = f"{fullest.device / capacity:.0%} of {format_bytes(capacity)}"
    left = estimate.margin_bytes
    margin = f"{format_bytes(abs(left))} {'to spare' if left >= 0 else 'too much'}"
    return f"{most}, {share}: {estimate.verdict}, {margin}{off}"


def _shown(stages: tuple[StageMemory, ...]) -> Iterator[StageMemory]:
    whole = len(stages) <= _ALL_SHOWN
    for stage in stages:
        if whole or stage.stage < _FIRST or stage.stage >= len(stages) - _LAST:
            yield stage


def _lengths(stage: StageMemory) -> dict[str, int]:
    lengths = {letter: sum(stage.components[part] for part in parts) for letter, (_, parts) in _PARTS.items()}
    return {**lengths, _REST[0]: stage.device - stage.allocated}


def _numbers(stage: StageMemory) -> tuple[str, ...]:
    parts = list(_lengths(stage).values())[: len(_PARTS)]
    sizes = (*parts, stage.allocated, stage.reserved, stage.device)
    return (str(stage.stage), str(stage.layers), *map(format_bytes, sizes))
