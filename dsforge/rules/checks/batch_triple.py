"""DSF111: the global batch divides by micro x DP."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.layout.batch import legal_micros, nearest_globals
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    batch, dp = facts.recipe.batch, facts.dp
    if dp is None or facts.accumulation_steps is not None:
        return
    micro = facts.micro or 1
    below, above = nearest_globals(batch.global_size, micro, dp)
    micros = legal_micros(batch.global_size, dp)
    options = f"global {below}" + (f" or {above}" if above != below else "")
    if micros:
        options += f", or micro {', '.join(map(str, micros[:8]))}"
    yield Found(
        f"global batch {batch.global_size} is not micro {micro} x DP {dp} = {micro * dp} times a whole "
        f"number of accumulation steps",
        "batch.global",
        f"nearest legal: {options}",
        Fix("batch.global", above),
    )


RULE = Rule(
    code="DSF111",
    name="batch-triple",
    severity=Severity.ERROR,
    summary="the global batch divides by micro x DP",
    why="global = micro x accumulation steps x DP must hold exactly; a floored division changes the batch.",
    check=_check,
)
