"""DSF120: ZeRO-2 and ZeRO-3 do not go with a pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    parallel = facts.recipe.parallel
    if facts.zero is not None and facts.zero >= 2 and parallel.pp > 1:
        yield Found(
            f"ZeRO-{facts.zero} with PP {parallel.pp}: the engine refuses more than ZeRO-1",
            "parallel.zero",
            "`zero: 1`, or `pp: 1`",
            Fix("parallel.zero", 1),
        )


RULE = Rule(
    code="DSF120",
    name="zero-pipeline",
    severity=Severity.ERROR,
    summary="ZeRO-2 and ZeRO-3 do not go with a pipeline",
    why="DeepSpeed's pipeline engine refuses them: gradients are kept whole while micro-batches accumulate.",
    check=_check,
    plannable=True,
)
