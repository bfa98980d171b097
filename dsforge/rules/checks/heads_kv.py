"""DSF103: heads divide by key-value heads."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    shape = facts.shape
    if shape.heads % shape.kv_heads:
        yield Found(
            f"{shape.heads} heads cannot share {shape.kv_heads} key-value heads evenly",
            "model.kv_heads",
            "kv_heads must divide heads",
        )


RULE = Rule(
    code="DSF103",
    name="heads-kv",
    severity=Severity.ERROR,
    summary="heads divide by key-value heads",
    why="Grouped-query attention shares one key-value head among an equal number of heads.",
    check=_check,
)
