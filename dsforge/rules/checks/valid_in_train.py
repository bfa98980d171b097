"""DSF117: validation data are not trained on."""

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
    trained = {posixpath.normpath(prefix) for _, prefix in data.train}
    for at, (_, prefix) in enumerate(data.valid or ()):
        if posixpath.normpath(prefix) in trained:
            yield Found(
                f"{prefix} is in data.train, too: its loss says how well it was learnt by heart",
                f"data.valid.{at}",
                "hold out documents of their own: `dsforge data prep` twice, with other files",
            )


RULE = Rule(
    code="DSF117",
    name="valid-in-train",
    severity=Severity.WARNING,
    summary="validation data are not trained on",
    why="A model that has seen the samples is measured by its memory, not by what it learnt of the language.",
    check=_check,
)
