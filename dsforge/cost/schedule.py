"""A pipeline's schedule, simulated: when each stage runs which micro-batch forward and backward."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal, NamedTuple

BACKWARD = 2
"""Seconds of a backward pass for each second forward: two products of each forward one's size."""


class Pass(NamedTuple):
    """A micro-batch going through a part of a stage; times in forward passes of a whole stage."""

    kind: Literal["F", "B"]
    micro: int
    part: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The passes of every stage in order of time."""

    stages: tuple[tuple[Pass, ...], ...]

    @property
    def end(self) -> float:
        """When the last pass ends."""
        return max(passes[-1].end for passes in self.stages)

    def busy(self, stage: int) -> float:
        """Return how long a stage computes."""
        return sum(one.end - one.start for one in self.stages[stage])

    @property
    def bubble(self) -> float:
        """Share of the step that a stage stands still, the same on all of them."""
        return 1 - self.busy(0) / self.end


def bubble_share(stages: int, parts: int, micros: int) -> float:
    """Return the bubble's share of a step: (p - 1) / v passes stand still beside m that run.

    Source: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2, there over the ideal time: (p - 1) / (v m).
    """
    idle = (stages - 1) / parts
    return idle / (micros + idle)


def simulate(schedule: str, stages: int, parts: int, micros: int) -> Timeline:
    """Return the timeline of `gpipe`, `1f1b` or `interleaved`; parts above 1 are virtual stages.

    Each stage runs its passes in the schedule's order, each as soon as what it needs has come. Interleaved
    schedules need micro-batches that stages divide.
    """
    orders = [deque(_order(schedule, stage, stages, parts, micros)) for stage in range(stages)]
    done: dict[tuple[str, int, int], float] = {}
    clocks = [0.0] * stages
    passes: list[list[Pass]] = [[] for _ in range(stages)]
    waiting = True
    while waiting:
        waiting = False
        for stage, order in enumerate(orders):
            while order:
                kind, micro, part = order[0]
                needs = _needs(kind, micro, part * stages + stage, stages * parts)
                if needs is not None and needs not in done:
                    waiting = True
                    break
                order.popleft()
                start = max(clocks[stage], done[needs] if needs is not None else 0.0)
                end = start + (1 if kind == "F" else BACKWARD) / parts
                clocks[stage] = done[kind, micro, part * stages + stage] = end
                passes[stage].append(Pass(kind, micro, part, start, end))
    return Timeline(tuple(map(tuple, passes)))


_Step = tuple[Literal["F", "B"], int, int]


def _needs(kind: str, micro: int, at: int, last: int) -> tuple[str, int, int] | None:
    """Return the pass that has to end before one at a place of the pipeline, from 0 to `last` - 1."""
    if kind == "F":
        return ("F", micro, at - 1) if at else None
    return ("B", micro, at + 1) if at + 1 < last else ("F", micro, at)


def _order(schedule: str, stage: int, stages: int, parts: int, micros: int) -> list[_Step]:
    """Return a stage's passes in order: forward ones to warm up, then one of each kind in turn."""
    forward: list[_Step] = [("F", micro, part) for micro, part in _turns(stages, parts, micros)]
    backward: list[_Step] = [("B", micro, parts - 1 - part) for micro, part in _turns(stages, parts, micros)]
    if schedule == "gpipe":
        return forward + backward
    warm = stages - stage - 1
    if parts > 1:
        # megatron/core/pipeline_parallel/schedules.py: get_pp_rank_microbatches
        warm = 2 * warm + (parts - 1) * stages
    warm = min(warm, len(forward))
    order = forward[:warm]
    for at, one in enumerate(forward[warm:]):
        order += [one, backward[at]]
    return order + backward[len(forward) - warm :]


def _turns(stages: int, parts: int, micros: int) -> list[tuple[int, int]]:
    """Return micro-batches and parts in turn: rounds of as many micro-batches as stages, part by part."""
    if parts == 1:
        return [(micro, 0) for micro in range(micros)]
    return [
        (first + micro, part)
        for first in range(0, micros, stages)
        for part in range(parts)
        for micro in range(min(stages, micros - first))
    ]
