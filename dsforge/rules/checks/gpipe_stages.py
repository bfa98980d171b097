"""DSF794: GPipe is a schedule of several stages."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_KEY = "parallel.schedule"


def _check(facts: Facts) -> Iterator[Found]:
    parallel = facts.recipe.parallel
    if parallel.schedule == "gpipe" and parallel.pp == 1 and facts.capabilities.takes(_KEY, "gpipe"):
        yield Found(
            "without stages every backward pass follows its own forward pass, which is not GPipe",
            _KEY,
            "`schedule: 1f1b`, or `pp` above 1",
            Fix(_KEY, "1f1b"),
        )


RULE = Rule(
    code="DSF794",
    name="gpipe-stages",
    severity=Severity.ERROR,
    summary="GPipe is a schedule of several stages",
    why="On one stage there is nothing to fill; activations of all micro-batches would be kept for nothing.",
    check=_check,
    plannable=True,
)
