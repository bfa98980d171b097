"""The constants of the memory model, from `catalog/data/memory.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from dsforge.catalog.yaml_tables import table

MIB = 2**20


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """What a training engine holds besides what its layout says.

    Facts: `states`, which copies of a parameter it keeps; `keeps_qkv`: values are a view of the whole
    projection, so that stays for the backward; `splits_inputs`: what a recomputed layer keeps is split
    over TP. Fitted: `workspace_mib` between steps; `hidden_bytes` more than the formula a token, layer and
    hidden element; `logit_bytes` an entry of the logits, all copies and gradients; `reserve`: a share of
    what is allocated at the peak beyond what lasts, that the allocator holds on top; `context_mib`: what
    nvidia-smi shows beyond what is reserved.
    """

    states: Literal["megatron", "deepspeed", "fsdp", "nanotron"]
    keeps_qkv: bool
    splits_inputs: bool
    workspace_mib: float
    hidden_bytes: float
    logit_bytes: float
    reserve: float
    context_mib: float


@dataclass(frozen=True, slots=True)
class MemoryConstants:
    """All constants by engine, and relative errors by what is measured."""

    engines: dict[str, EngineMemory]
    errors: dict[str, float]


def build(rows: dict[str, Any]) -> MemoryConstants:
    """Return the constants from the rows of their file."""
    engines = {name: EngineMemory(**row) for name, row in rows["engines"].items()}
    return MemoryConstants(engines, dict(rows["errors"]))


@cache
def memory_constants() -> MemoryConstants:
    """Return the constants that come with this version."""
    return build(table("memory"))
