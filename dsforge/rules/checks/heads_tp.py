"""DSF101: attention heads divide by TP."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.degrees import legal_tp, nearest_below
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    heads, tp = facts.shape.heads, facts.recipe.parallel.tp
    if heads % tp:
        legal = legal_tp(facts.shape)
        yield Found(
            f"{heads} heads cannot be split over TP {tp}",
            "parallel.tp",
            f"TP that fits this model: {', '.join(map(str, legal))}",
            Fix("parallel.tp", nearest_below(legal, tp)),
        )


RULE = Rule(
    code="DSF101",
    name="heads-tp",
    severity=Severity.ERROR,
    summary="attention heads divide by TP",
    why="Each tensor-parallel rank computes whole heads; megatron-core asserts on every rank at start.",
    check=_check,
)
