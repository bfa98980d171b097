"""Prints the best layouts as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dsforge.base.units import format_bytes
from dsforge.cli import output

if TYPE_CHECKING:
    from dsforge.plan.search.best import Found, Objective
    from dsforge.plan.search.run import Searched

_CHOICES = {
    "TP": "tp",
    "PP": "pp",
    "CP": "cp",
    "EP": "ep",
    "VP": "vp",
    "DP": "dp",
    "micro": "micro",
    "ZeRO": "zero",
    "recompute": "recompute",
    "seq. par.": "sequence_parallel",
    "optimizer on": "optimizer",
    "weights on": "parameters",
}
_ALWAYS = ("TP", "PP", "DP", "micro", "ZeRO", "recompute")
_PLAIN = (1, False, "none")
"""Choices that need no column where every layout has them."""


def show(searched: Searched, tokens: int, objective: Objective) -> None:
    """Write the table to stdout; `tokens`: of one step."""
    from dsforge.plan.ranking import difference

    found = searched.found
    shown = _shown([one.candidate._asdict() for one in found])
    columns = {title: _choice(name) for title, name in shown.items()}
    if len({one.gpus for one in found}) > 1:
        columns["GPUs"] = lambda one: str(one.gpus)
    columns |= {
        "s a step": lambda one: f"{one.step.total:.3g}",
        "tokens/s/GPU": lambda one: f"{tokens / one.step.total / one.gpus:,.0f}",
        "memory": lambda one: format_bytes(one.memory_bytes),
        "bubble of step": lambda one: f"{one.step.bubble / one.step.total:.1%}",
        "why not": lambda one: "" if one is found[0] else difference(one, found[0], objective),
    }
    rows = [[told(one) for told in columns.values()] for one in found]
    output.table(f"Best layouts by {objective}", tuple(columns), rows)


def _choice(name: str) -> Callable[[Found], str]:
    return lambda one: _told(getattr(one.candidate, name))


def choices(layouts: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the titles of what tells layouts apart, by the names of a candidate, and a row for each."""
    shown = _shown(layouts)
    return list(shown), [[_told(one[name]) for name in shown.values()] for one in layouts]


def _shown(layouts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        title: name
        for title, name in _CHOICES.items()
        if title in _ALWAYS or any(one[name] not in _PLAIN for one in layouts)
    }


def _told(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
