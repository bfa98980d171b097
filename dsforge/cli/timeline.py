"""Prints a pipeline schedule: a line a stage, forward and backward passes and where it stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsforge.cli import output

if TYPE_CHECKING:
    from dsforge.cost.schedule import Pass
    from dsforge.plan.timeline import Schedule

_MARKS = {"F": "f", "B": "B"}
_IDLE = "."
_WIDTHS = (24, 120)
"""Columns of time, at least and at most."""


def show(made: Schedule, width: int) -> None:
    """Write the schedule to stdout, not wider than `width` characters."""
    parts = f", {made.parts} virtual stages each" if made.parts > 1 else ""
    output.line(
        f"Schedule {made.name}: {made.micros} micro-batches over {made.stages} stages{parts}, "
        f"which stand still {made.bubble:.1%} of a step"
    )
    labels = [f"  {stage:>{len(str(made.stages - 1))}} " for stage in made.shown]
    columns = max(_WIDTHS[0], min(_WIDTHS[1], width - len(labels[0])))
    columns = min(columns, round(made.timeline.end * made.parts))
    for label, stage in zip(labels, made.shown, strict=True):
        output.line(label + _row(made.timeline.stages[stage], made.timeline.end, columns))
    drawn = "" if made.simulated == made.micros else f"; drawn with {made.simulated} micro-batches"
    output.line(f"  {_MARKS['F']} forward, {_MARKS['B']} backward, {_IDLE} stands still{drawn}")


def _row(passes: tuple[Pass, ...], end: float, columns: int) -> str:
    """Return what a stage does in the middle of each column's time."""
    row, at = [], 0
    for column in range(columns):
        moment = (column + 0.5) * end / columns
        while at < len(passes) and passes[at].end <= moment:
            at += 1
        runs = at < len(passes) and passes[at].start <= moment
        row.append(_MARKS[passes[at].kind] if runs else _IDLE)
    return "".join(row)
