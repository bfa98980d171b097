"""DSF800: on a CPU parameters go to a disk from more than one replica."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    on_disk = facts.recipe.offload.parameters == "nvme" and facts.capabilities.takes(
        "offload.parameters", "nvme"
    )
    ours = facts.recipe.trainer != "external" and facts.capabilities.deepspeed
    if on_disk and ours and facts.dp == 1 and facts.hardware.accelerator == "cpu":
        yield Found(
            "one replica alone would compute on a CPU in the very buffers that the disk is read into",
            "offload.parameters",
            "`parameters: cpu`, or a second replica",
            Fix("offload.parameters", "cpu"),
        )


RULE = Rule(
    code="DSF800",
    name="disk-alone",
    severity=Severity.ERROR,
    summary="on a CPU parameters go to a disk from more than one replica",
    why="Where a shard is the whole parameter and no device is there to copy it to, DeepSpeed hands out the "
    "buffer itself. What recomputation keeps of it until the backward is then another parameter's: wrong "
    "gradients, of a few percent, and no error.",
    check=_check,
    plannable=True,
)
