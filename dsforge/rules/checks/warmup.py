"""DSF114: warm-up ends before the run does, and the rate decays downward."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    optimizer = facts.recipe.optimizer
    if facts.steps is not None and optimizer.warmup_steps >= facts.steps and optimizer.warmup_steps:
        yield Found(
            f"warm-up of {optimizer.warmup_steps} steps in a run of {facts.steps}",
            "optimizer.warmup_steps",
            f"fewer than {facts.steps}",
            Fix("optimizer.warmup_steps", facts.steps // 10),
        )
    if optimizer.min_lr > optimizer.lr:
        yield Found(
            f"min_lr {optimizer.min_lr:g} is above lr {optimizer.lr:g}",
            "optimizer.min_lr",
            "min_lr at most lr",
            Fix("optimizer.min_lr", optimizer.lr),
        )


RULE = Rule(
    code="DSF114",
    name="warmup",
    severity=Severity.ERROR,
    summary="warm-up ends before the run does, and the rate decays downward",
    why="A warm-up as long as the run never reaches the peak rate; a floor above the peak would raise it.",
    check=_check,
)
