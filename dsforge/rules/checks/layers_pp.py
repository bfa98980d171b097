"""DSF107: every stage holds a layer, and uniform stages hold equally many."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    layers, parallel = facts.shape.layers, facts.recipe.parallel
    if parallel.pp > layers:
        yield Found(
            f"{layers} layers cannot fill {parallel.pp} stages",
            "parallel.pp",
            f"PP at most {layers}",
            Fix("parallel.pp", layers),
        )
    elif parallel.partition == "uniform" and layers % parallel.pp:
        yield Found(
            f"{layers} layers cannot be dealt equally to {parallel.pp} stages",
            "parallel.pp",
            "choose PP that divides the layers, or `partition: parameters`",
            Fix("parallel.partition", "parameters"),
        )


RULE = Rule(
    code="DSF107",
    name="layers-pp",
    severity=Severity.ERROR,
    summary="every stage holds a layer, and uniform stages hold equally many",
    why="A stage without layers idles its ranks; uneven uniform stages make all wait for the fullest.",
    check=_check,
)
