"""Prints a pipeline schedule: a line a stage, forward and backward passes and where it stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsforge.cli import output

if TYPE_CHECKING:
    from dsforge.cost.schedule import Pass
    from dsforge.plan.timeline import Schedule

_MARKS = {"F": "f", "B": "B"}
_BOTH, _IDLE = "=", "."
_LABEL = 2 + 4 + 1
_WIDTHS = (24, 120)
"""Columns of time, at least and at most."""


def columns_of(width: int) -> int:
    """Return the columns of time in lines of so many characters."""
    return max(_WIDTHS[0], min(_WIDTHS[1], width - _LABEL))


def show(made: Schedule, width: int) -> None:
    """Write the schedule to stdout, not wider than `width` characters."""
    parts = f", {made.parts} virtual stages each" if made.parts > 1 else ""
    output.line(
        f"Schedule {made.name}: {made.micros} micro-batches over {made.stages} stages{parts}, "
        f"which stand still {made.bubble:.1%} of the pipeline's part of a step"
    )
    end = made.timeline.end
    columns = min(columns_of(width), round(end * made.parts))
    rows = {stage: _row(made.timeline.stages[stage], end / columns, columns) for stage in made.shown}
    for stage, row in rows.items():
        output.line(f"  {stage:>4} {row}")
    both = f", {_BOTH} both in turn" if any(_BOTH in row for row in rows.values()) else ""
    drawn = "" if made.simulated == made.micros else f"; drawn with {made.simulated} micro-batches"
    output.line(f"  {_MARKS['F']} forward, {_MARKS['B']} backward{both}, {_IDLE} stands still{drawn}")


def _row(passes: tuple[Pass, ...], column: float, columns: int) -> str:
    """Return what a stage does most of each column's time."""
    busy = [{"F": 0.0, "B": 0.0} for _ in range(columns)]
    for one in passes:
        for at in range(int(one.start / column), min(columns, int(one.end / column) + 1)):
            inside = min(one.end, (at + 1) * column) - max(one.start, at * column)
            busy[at][one.kind] += max(0.0, inside)
    return "".join(_mark(times, column) for times in busy)


def _mark(times: dict[str, float], column: float) -> str:
    if 2 * sum(times.values()) < column:
        return _IDLE
    least = min(times.values())
    return _BOTH if 4 * least > column else _MARKS[max(times, key=lambda kind: times[kind])]
