"""DSF761: nothing here was tried on ROCm."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    if facts.hardware.accelerator == "rocm":
        yield Found(
            f"{facts.hardware.name} needs torch and engines built for ROCm; no trainer here was tried on it",
            "cluster.gpu",
            "run `dsforge verify` there before a long run",
        )


RULE = Rule(
    code="DSF761",
    name="rocm",
    severity=Severity.WARNING,
    summary="trainers were tried on CUDA and CPUs alone",
    why="ROCm's torch calls the device cuda, so trainers start, but no kernel or collective was tried there.",
    check=_check,
)
