"""DSF116: each data set stands once in a blend."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    data = facts.recipe.data
    if data is None:
        return
    for key, sets in (("data.train", data.train), ("data.valid", data.valid or ())):
        first: dict[str, int] = {}
        for at, (weight, prefix) in enumerate(sets):
            before = first.setdefault(posixpath.normpath(prefix), at)
            if before != at:
                yield Found(
                    f"{key} names {prefix} twice, with the weights {sets[before][0]:g} and {weight:g}",
                    f"{key}.{at}",
                    f"name it once, with the weight {sets[before][0] + weight:g}",
                )


RULE = Rule(
    code="DSF116",
    name="blend-twice",
    severity=Severity.ERROR,
    summary="each data set stands once in a blend",
    why="Each entry goes through its data on its own: samples of one epoch would come twice, unseen.",
    check=_check,
    plannable=True,
)
