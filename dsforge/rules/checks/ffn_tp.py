"""DSF106: feed-forward width divides by TP."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.degrees import legal_tp, nearest_below
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    ffn, tp = facts.shape.ffn_hidden, facts.recipe.parallel.tp
    if ffn % tp:
        legal = legal_tp(facts.shape)
        yield Found(
            f"ffn_hidden {ffn} cannot be split over TP {tp}",
            "parallel.tp",
            f"make ffn_hidden a multiple of {tp}, or TP one of {', '.join(map(str, legal))}",
            Fix("parallel.tp", nearest_below(legal, tp)),
        )


RULE = Rule(
    code="DSF106",
    name="ffn-tp",
    severity=Severity.ERROR,
    summary="feed-forward width divides by TP",
    why="The feed-forward layer is split by columns, then rows; shards must be equal.",
    check=_check,
)
