"""DSF813: fp16 under DeepSpeed needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    recipe = facts.recipe
    # What external programs need of a CPU stands in their own files.
    if recipe.external is None and not facts.capabilities.computes(
        recipe.train.precision, facts.hardware.accelerator
    ):
        yield Found(
            "DeepSpeed does not compute in fp16 on a CPU",
            "train.precision",
            "train in bf16 here, or with `trainer: fsdp`, which computes in fp16 on a CPU, too",
            Fix("train.precision", "bf16"),
        )


RULE = Rule(
    code="DSF813",
    name="fp16-cpu",
    severity=Severity.ERROR,
    summary="fp16 under DeepSpeed needs a GPU",
    why=(
        "DeepSpeed asks PyTorch whether the CPU has instructions for fp16, which few have, and refuses the "
        "others once the ranks have started."
    ),
    check=_check,
    plannable=True,
)
