"""DSF113: steps or tokens, not both."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    train = facts.recipe.train
    if train.steps is not None and train.tokens is not None:
        yield Found("both train.steps and train.tokens are set", "train.tokens", "keep one of the two")


RULE = Rule(
    code="DSF113",
    name="length",
    severity=Severity.ERROR,
    summary="steps or tokens, not both",
    why="Two lengths can disagree, and one of them would be ignored.",
    check=_check,
)
