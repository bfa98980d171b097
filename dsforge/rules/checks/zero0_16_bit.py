"""DSF122: ZeRO-0 in 16 bits needs a pipeline, and in fp16 is wrong with one, too."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    recipe, precision = facts.recipe, facts.recipe.train.precision
    if not facts.capabilities.deepspeed or facts.zero != 0:
        return
    # External programs that train so in fp16 are many, and their numbers their own.
    ours_in_fp16 = precision == "fp16" and recipe.external is None
    if ours_in_fp16 or (precision == "bf16" and recipe.parallel.pp == 1):
        where = "in fp16" if precision == "fp16" else "in bf16 without a pipeline"
        yield Found(
            f"ZeRO-0 {where} trains wrongly",
            "parallel.zero",
            "`zero: 1` keeps the master weights and moments rightly, also with one replica",
            Fix("parallel.zero", 1),
        )


RULE = Rule(
    code="DSF122",
    name="zero0-16-bit",
    severity=Severity.ERROR,
    summary="ZeRO-0 in fp16, or in bf16 without a pipeline, starts AdamW a step late",
    why=(
        "DeepSpeed's 16-bit optimizers without ZeRO take a step of AdamW while they set up their states, so "
        "every bias correction is one step off, and under TP the gradient norm leaves shards out: losses in "
        "bf16 differ by 4e-2 within twenty steps, a hundred times its rounding. A pipeline has another "
        "optimizer in bf16, and the same in fp16."
    ),
    check=_check,
    plannable=True,
)
