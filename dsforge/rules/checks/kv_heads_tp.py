"""DSF102: key-value heads divide by TP."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.degrees import legal_tp, nearest_below
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    kv_heads, tp = facts.shape.kv_heads, facts.recipe.parallel.tp
    if kv_heads % tp:
        legal = legal_tp(facts.shape)
        yield Found(
            f"{kv_heads} key-value heads cannot be split over TP {tp}",
            "parallel.tp",
            f"TP that fits this model: {', '.join(map(str, legal))}",
            Fix("parallel.tp", nearest_below(legal, tp)),
        )


RULE = Rule(
    code="DSF102",
    name="kv-heads-tp",
    severity=Severity.ERROR,
    summary="key-value heads divide by TP",
    why="Each tensor-parallel rank holds whole key-value heads; they are not replicated.",
    check=_check,
)
