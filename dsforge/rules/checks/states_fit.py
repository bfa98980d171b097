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
        sums = facts.fp32_sum_bytes
        among = f" and fp32 sums of gradients ({format_bytes(sums)} of it)" if sums else ""
        yield Found(
            f"the fullest rank needs {format_bytes(need)} for model states{among}, each "
            f"{facts.hardware.name} has {format_bytes(room)}",
            "cluster.gpu",
            f"{_levers(facts)}or more GPUs",
        )


def _levers(facts: Facts) -> str:
    """Return what shares states out further under the trainer, else which one does, each with a comma."""
    takes, parallel = facts.capabilities.takes, facts.recipe.parallel
    higher = range((facts.zero or 0) + 1, (1 if parallel.pp > 1 else 3) + 1)
    levers = [
        *(["a higher ZeRO stage"] if any(takes("parallel.zero", stage) for stage in higher) else []),
        *(f"more {key.upper()}" for key in ("tp", "pp") if takes(f"parallel.{key}", 2)),
    ]
    if not levers and facts.zero == 0:
        written = " without `parallel.zero: 0`" if parallel.zero == 0 else ""
        levers = [f"`trainer: fsdp`{written}, whose ranks share states out"]
    elif not levers and takes("offload.optimizer", "cpu") and facts.recipe.offload.optimizer == "none":
        levers = ["offload to the CPU"]
    return "".join(f"{lever}, " for lever in levers)


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
