"""The pipeline schedule of a plan as numbers: what a picture of it is drawn from."""

from __future__ import annotations

from dataclasses import dataclass

from dsforge.cost.schedule import BACKWARD, Timeline, bubble_share, simulate
from dsforge.plan.types import Plan

_MOST_STAGES = 8
"""Stages that are drawn at most."""


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


def schedule_of(plan: Plan, columns: int) -> Schedule | None:
    """Return the schedule of a plan, of as many micro-batches as there are columns to draw each pass in.

    All of them where that is enough, a round over the stages at least: more go on as those in the middle.
    None where there is one stage, or no such schedule.
    """
    layout, micros = plan.layout, plan.batch.accumulation_steps
    pp, vp = layout.pp, layout.vp
    if pp == 1 or (vp > 1 and micros % pp):
        return None
    drawn = columns // ((1 + BACKWARD) * vp) - (pp - 1) // vp
    simulated = min(micros, max(pp, drawn))
    if vp > 1:
        simulated -= simulated % pp
    timeline = simulate(layout.schedule, pp, vp, simulated)
    return Schedule(
        name=layout.schedule,
        stages=pp,
        parts=vp,
        micros=micros,
        simulated=simulated,
        bubble=bubble_share(pp, vp, micros),
        timeline=timeline,
        shown=_some(pp),
    )


def _some(stages: int) -> tuple[int, ...]:
    """Return stages to draw, the first and the last among them."""
    if stages <= _MOST_STAGES:
        return tuple(range(stages))
    return tuple(round(at * (stages - 1) / (_MOST_STAGES - 1)) for at in range(_MOST_STAGES))
