"""DSF106: feed-forward width divides by TP."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from dsforge.base.errors import Fix, Severity
from dsforge.rules.degrees import legal_tp, nearest_below
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    widths, tp = facts.shape.mlp_widths(), facts.recipe.parallel.tp
    # Experts may be of other widths than the dense layers: TP has to divide them all.
    ffn = gcd(*widths)
    if ffn % tp:
        legal = legal_tp(facts.shape)
        yield Found(
            f"ffn_hidden {' and '.join(map(str, widths))} cannot be split over TP {tp}",
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
