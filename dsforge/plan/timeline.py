"""The pipeline schedule of a plan as numbers: what a picture of it is drawn from."""

from __future__ import annotations

from dataclasses import dataclass

from dsforge.cost.schedule import Timeline, bubble_share, simulate
from dsforge.plan.types import Plan

_ROUNDS = 4
"""Micro-batches a stage that are simulated at most: more would go on as in the middle of these."""
_MOST_STAGES = 8


@dataclass(frozen=True, slots=True)
class Schedule:
    """`timeline` of a step of `simulated` micro-batches; `bubble`: of one of `micros`.

    `shown`: stages that are drawn.
    """

    name: str
    stages: int
    parts: int
    micros: int
    simulated: int
    bubble: float
    timeline: Timeline
    shown: tuple[int, ...]

    def to_json_value(self) -> dict[str, object]:
        """Return the JSON-ready mapping; times in forward passes of a stage."""
        return {
            "schedule": self.name,
            "stages": self.stages,
            "virtual_stages": self.parts,
            "micro_batches": self.micros,
            "simulated_micro_batches": self.simulated,
            "bubble": self.bubble,
            "passes": [
                {"stage": stage, "passes": [one._asdict() for one in self.timeline.stages[stage]]}
                for stage in self.shown
            ],
        }


def schedule_of(plan: Plan) -> Schedule | None:
    """Return the schedule of a plan; None where there is one stage, or the program has its own."""
    layout, micros = plan.layout, plan.batch.accumulation_steps
    if layout.pp == 1 or (layout.vp > 1 and micros % layout.pp):
        return None
    simulated = min(micros, _ROUNDS * layout.pp)
    timeline = simulate(layout.schedule, layout.pp, layout.vp, simulated)
    return Schedule(
        name=layout.schedule,
        stages=layout.pp,
        parts=layout.vp,
        micros=micros,
        simulated=simulated,
        bubble=bubble_share(layout.pp, layout.vp, micros),
        timeline=timeline,
        shown=_some(layout.pp),
    )


def _some(stages: int) -> tuple[int, ...]:
    """Return stages to draw, the first and the last among them."""
    if stages <= _MOST_STAGES:
        return tuple(range(stages))
    return tuple(round(at * (stages - 1) / (_MOST_STAGES - 1)) for at in range(_MOST_STAGES))
