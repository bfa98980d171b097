"""DSF152: NCCL_P2P_DISABLE=1 gives NVLink up."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    if (
        facts.recipe.launch.env.get("NCCL_P2P_DISABLE", "0") not in ("", "0")
        and facts.hardware.accelerator == "cuda"
    ):
        yield Found(
            "NCCL_P2P_DISABLE turns NVLink off",
            "launch.env.NCCL_P2P_DISABLE",
            "remove it, unless a P2P fault has been shown on these hosts",
        )


RULE = Rule(
    code="DSF152",
    name="p2p-disabled",
    severity=Severity.WARNING,
    summary="NCCL_P2P_DISABLE=1 gives NVLink up",
    why="With peer-to-peer off, GPUs of one node talk through host memory; TP slows down several times.",
    check=_check,
)
