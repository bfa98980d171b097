"""The constants of the memory model, from `catalog/data/memory.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from dsforge.catalog.yaml_tables import table
from dsforge.cost.calibration import calibration
from dsforge.cost.states import Keeper

MIB = 2**20


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """What a training engine holds besides what its layout says.

    Facts: `states`, which copies of a parameter it keeps; `keeps_gathered`: what sequence parallelism gathers
    stays for the backward; `late_gradients`: made by the backward, so that without accumulation none are
    there as activations peak; `splits_inputs`: what a recomputed layer keeps is split over TP;
    `transformer_engine`, whose matrix products have a workspace of their own; `whole_mask`: the data loader
    makes a mask of sequence x sequence.

    Fitted: `hidden_bytes` more than the formula a token, layer and hidden element; `logit_bytes` an entry of
    the logits, all copies and gradients; `reserve`: a share of what is allocated at the peak beyond what
    lasts, that the allocator holds on top; `pool_mib` that it holds in any case, from start-up and the
    update; `context_mib`: what nvidia-smi shows beyond what is reserved; `group_mib`: small buffers that
    last, of each kind of parallelism beyond tensor and data.
    """

    states: Keeper
    keeps_gathered: bool
    late_gradients: bool
    splits_inputs: bool
    transformer_engine: bool
    whole_mask: bool
    hidden_bytes: float
    logit_bytes: float
    reserve: float
    pool_mib: float
    context_mib: float
    group_mib: float


@dataclass(frozen=True, slots=True)
class MemoryConstants:
    """All constants by engine of the calibration, and relative errors by what is measured."""

    engines: dict[str, EngineMemory]
    errors: dict[str, float]


def build(rows: dict[str, Any]) -> MemoryConstants:
    """Return the constants from the rows of their file."""
    engines = {name: EngineMemory(**row) for name, row in rows["engines"].items()}
    engines |= {name: engines[like] for name, like in rows["alike"].items()}
    return MemoryConstants(engines, dict(rows["errors"]))


@cache
def memory_constants() -> MemoryConstants:
    """Return the constants that come with this version."""
    return build(table("memory"))


def keeper_of(trainer: str) -> Keeper:
    """Return whose way a trainer, or an external flavour, keeps its states; one like no other DeepSpeed's."""
    engine = memory_constants().engines.get(calibration().trainers.get(trainer, ""))
    return engine.states if engine is not None else "deepspeed"
