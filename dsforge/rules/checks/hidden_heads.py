"""DSF104: hidden divides by heads."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    section = facts.recipe.model
    derived = not isinstance(section, str) and section.head_dim is None
    if derived and facts.shape.hidden % facts.shape.heads:
        yield Found(
            f"hidden {facts.shape.hidden} is not a multiple of {facts.shape.heads} heads",
            "model.hidden",
            "make hidden a multiple of heads, or set model.head_dim",
        )


RULE = Rule(
    code="DSF104",
    name="hidden-heads",
    severity=Severity.ERROR,
    summary="hidden divides by heads",
    why="Without an explicit head_dim a head is hidden / heads wide; a remainder would drop channels.",
    check=_check,
)
