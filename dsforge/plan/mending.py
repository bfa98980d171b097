"""The cheapest edits of a recipe that make its plan fit the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.cost.step import step_seconds
from dsforge.layout.batch import legal_micros
from dsforge.plan.job import job_of
from dsforge.plan.memory import memory_estimate
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.settled import value_of, with_values

MOST = 3
"""Edits that are shown."""


@dataclass(frozen=True, slots=True)
class MemoryEdit:
    """Values by the recipe's keys, and the step's seconds and the fullest rank's bytes with them."""

    changes: dict[str, Any]
    step_seconds: float
    device_bytes: int

    @property
    def text(self) -> str:
        """As arguments of a command."""
        return " ".join(f"{key}={_written(value)}" for key, value in self.changes.items())


def edits_that_fit(loaded: LoadedRecipe, plan: Plan) -> list[MemoryEdit]:
    """Return the edits after which the plan fits, those first that cost least time a step, offload last.

    Each way out (micro-batch, recomputation, ZeRO, sequence parallelism, TP, PP, offload) is gone as far as
    it takes, first alone, then with full recomputation and micro-batches of one sample. Rules and the
    trainer's table have their say: an edit that they refuse is none.
    """
    found = _try(loaded, plan, {})
    if len(found) < MOST:
        found += _try(loaded, plan, {"batch.micro": 1, "train.recompute": "full"})
    best: list[MemoryEdit] = []
    for one in sorted(found, key=_order):
        # What only adds to an edit that is no slower is no way of its own.
        if not any(other.changes.items() <= one.changes.items() for other in best):
            best.append(one)
    return best[:MOST]


def _order(edit: MemoryEdit) -> tuple[bool, float, int]:
    # What offload costs is estimated, and not held against any published run.
    offloads = any(key.startswith("offload.") for key in edit.changes)
    return offloads, edit.step_seconds, len(edit.changes)


def _try(loaded: LoadedRecipe, plan: Plan, base: Mapping[str, Any]) -> list[MemoryEdit]:
    """Return of each way the first edit that fits, on top of `base`; `base` itself where it is enough."""
    ways = list(_ways(plan))
    found = [_fitting(loaded, [dict(base)])] if base else []
    found += [_fitting(loaded, [{**base, **changes} for changes in way]) for way in ways]
    return [edit for edit in found if edit is not None]


def _ways(plan: Plan) -> Iterator[list[dict[str, Any]]]:
    layout, batch = plan.layout, plan.batch
    micros = [size for size in legal_micros(batch.global_size, layout.dp) if size < batch.micro]
    yield [{"batch.micro": size} for size in sorted(micros, reverse=True)]
    yield [{"train.recompute": kind} for kind in ("selective", "full")]
    yield [{"parallel.zero": stage} for stage in range(layout.zero + 1, 4)]
    yield [{"parallel.sequence_parallel": True}]
    yield [{"parallel.tp": tp, "parallel.dp": "auto"} for tp in _twice(layout.tp, layout.gpus_per_node)]
    yield [{"parallel.pp": pp, "parallel.dp": "auto"} for pp in _twice(layout.pp, plan.model.layers)]
    yield [{"offload.optimizer": "cpu"}, {"offload.optimizer": "cpu", "offload.parameters": "cpu"}]


def _twice(degree: int, most: int) -> list[int]:
    return [degree * 2**power for power in range(1, 8) if degree * 2**power <= most]


def _fitting(loaded: LoadedRecipe, ways: list[dict[str, Any]]) -> MemoryEdit | None:
    """Return the first that fits."""
    for changes in ways:
        try:
            made = make_plan(replace(loaded, recipe=with_values(loaded.recipe, changes)))
        except DsforgeError:
            continue
        job, memory = job_of(made), memory_estimate(made)
        if not isinstance(job, str) and not isinstance(memory, str) and memory.verdict == "fits":
            told = {key: value for key, value in changes.items() if value_of(loaded.recipe, key) != value}
            return MemoryEdit(told, step_seconds(job).total, memory.fullest.device)
    return None


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
