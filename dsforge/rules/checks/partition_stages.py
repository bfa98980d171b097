"""DSF812: layers are dealt out where there are stages."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_KEY = "parallel.partition"


def _check(facts: Facts) -> Iterator[Found]:
    parallel, taken = facts.recipe.parallel, facts.capabilities.takes(_KEY, facts.recipe.parallel.partition)
    if taken and parallel.partition == "measured" and parallel.pp == 1:
        yield Found(
            "`partition: measured` has no effect: one stage holds all layers",
            _KEY,
            "leave out partition and partition_weights, or `pp` above 1",
        )


RULE = Rule(
    code="DSF812",
    name="partition-stages",
    severity=Severity.WARNING,
    summary="layers are dealt out where there are stages",
    why="Without stages nothing is dealt out, and the measured times would be read for nothing.",
    check=_check,
)
