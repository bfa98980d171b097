"""DSF160: model states and fp32 sums of gradients fit the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.base.units import format_bytes
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    room, need = facts.hardware.memory_bytes, facts.total_bytes
    if room is not None and need is not None and need > room:
        parallel = facts.recipe.parallel
        levers = "more PP or TP" if parallel.pp > 1 else "a higher ZeRO stage, more TP or PP"
        sums = facts.fp32_sum_bytes
        among = f" and fp32 sums of gradients ({format_bytes(sums)} of it)" if sums else ""
        yield Found(
            f"the fullest rank needs {format_bytes(need)} for model states{among}, each "
            f"{facts.hardware.name} has {format_bytes(room)}",
            "cluster.gpu",
            f"{levers}, or more GPUs",
        )


RULE = Rule(
    code="DSF160",
    name="states-fit",
    severity=Severity.ERROR,
    summary="model states and fp32 sums of gradients fit the GPU",
    why=(
        "Parameters, gradients and optimizer states, and the fp32 sums that bf16 gradients are added up in, "
        "alone exceed the memory: out of memory before the first step is done."
    ),
    check=_check,
    plannable=True,
)
