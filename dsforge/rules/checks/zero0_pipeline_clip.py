"""DSF121: ZeRO-0 with a pipeline clips by a wrong norm in fp32."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    recipe = facts.recipe
    if (
        facts.capabilities.deepspeed
        and facts.zero == 0
        and recipe.parallel.pp > 1
        and recipe.train.precision == "fp32"
        and recipe.optimizer.grad_clip > 0
    ):
        yield Found(
            f"ZeRO-0 with PP {recipe.parallel.pp} in fp32 and grad_clip {recipe.optimizer.grad_clip:g} "
            f"trains wrongly",
            "parallel.zero",
            "`zero: 1` computes the norm rightly",
            Fix("parallel.zero", 1),
        )


RULE = Rule(
    code="DSF121",
    name="zero0-pipeline-clip",
    severity=Severity.ERROR,
    summary="ZeRO-0 with a pipeline clips by a wrong norm in fp32",
    why=(
        "DeepSpeed's fp32 norm skips replicated parameters on later stages and counts tied weights "
        "twice, so gradients are scaled wrongly and the loss differs from the same run without a "
        "pipeline."
    ),
    check=_check,
    plannable=True,
)
