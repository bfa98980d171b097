"""DSF130: TP stays inside a node."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    tp, per_node = facts.recipe.parallel.tp, facts.recipe.cluster.gpus_per_node
    if facts.recipe.cluster.nodes > 1 and per_node % tp and facts.fast_domain % tp:
        inside = max(
            degree for degree in range(1, per_node + 1) if per_node % degree == 0 and tp % degree == 0
        )
        yield Found(
            f"TP {tp} groups cross nodes of {per_node} GPUs",
            "parallel.tp",
            f"TP that divides {per_node}, and more PP for the rest",
            Fix("parallel.tp", inside),
        )


RULE = Rule(
    code="DSF130",
    name="tp-across-nodes",
    severity=Severity.WARNING,
    summary="TP stays inside a node",
    why="Every layer waits for two all-reduces a pass; between nodes they run at network speed.",
    check=_check,
)
