"""DSF102: key-value heads divide by TP."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    kv_heads, tp = facts.shape.kv_heads, facts.recipe.parallel.tp
    if kv_heads % tp:
        legal = [
            degree for degree in range(1, tp) if kv_heads % degree == 0 and facts.shape.heads % degree == 0
        ]
        yield Found(
            f"{kv_heads} key-value heads cannot be split over TP {tp}",
            "parallel.tp",
            f"TP that divides them: {', '.join(map(str, legal))}",
            Fix("parallel.tp", legal[-1]),
        )


RULE = Rule(
    code="DSF102",
    name="kv-heads-tp",
    severity=Severity.ERROR,
    summary="key-value heads divide by TP",
    why="Each tensor-parallel rank holds whole key-value heads; they are not replicated.",
    check=_check,
)
