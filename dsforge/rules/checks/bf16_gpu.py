"""DSF822: the GPU computes in bf16."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    if facts.recipe.train.precision != "bf16" or facts.hardware.multiplies_in("bf16"):
        return
    # DeepSpeed trains rightly in fp16 from ZeRO-1 on (DSF122).
    below = facts.capabilities.deepspeed and facts.recipe.parallel.zero == 0
    yield Found(
        f"{facts.hardware.name} has no instructions for bf16",
        "train.precision",
        "`train.precision: fp16`" + (" with `parallel.zero: 1`" if below else ", which it has"),
        None if below else Fix("train.precision", "fp16"),
    )


RULE = Rule(
    code="DSF822",
    name="bf16-gpu",
    severity=Severity.WARNING,
    summary="the GPU computes in bf16",
    why="GPUs before Ampere have matrix instructions for fp16 alone: libraries refuse bf16 there, or "
    "compute it in fp32, at a fraction of the rate that a plan counts on.",
    check=_check,
)
