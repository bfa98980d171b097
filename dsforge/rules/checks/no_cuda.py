"""DSF760: the accelerator is one that torch calls cuda, or the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    if facts.hardware.accelerator == "hpu":
        yield Found(
            f"no trainer here runs on {facts.hardware.name}: it can be planned for, not run on",
            "cluster.gpu",
            "take Habana's forks of the engines with the plan's degrees, or another GPU",
        )


RULE = Rule(
    code="DSF760",
    name="no-cuda",
    severity=Severity.ERROR,
    summary="the accelerator is one that torch calls cuda, or the CPU",
    why="The trainers and their engines name the device cuda; Gaudi's is hpu, and a run would stop at once.",
    check=_check,
    plannable=True,
    harmless_plan=True,
    firm=True,
)
