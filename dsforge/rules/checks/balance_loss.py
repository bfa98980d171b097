"""DSF790: experts are balanced where there are experts."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    train, key = facts.recipe.train, "train.balance_loss"
    if (
        train.balance_loss
        and facts.shape.experts is None
        and facts.capabilities.takes(key, train.balance_loss)
    ):
        yield Found(
            f"a balance loss of {train.balance_loss:g}, and {facts.shape.name} has no experts",
            key,
            "`balance_loss: 0`, or a model with experts",
            Fix(key, 0.0),
        )
    elif train.balance_over != "layer" and not train.balance_loss:
        yield Found(
            f"`balance_over: {train.balance_over}` of a balance loss that is 0",
            "train.balance_over",
            "leave it at `layer`, or set train.balance_loss",
            Fix("train.balance_over", "layer"),
        )


RULE = Rule(
    code="DSF790",
    name="balance-loss",
    severity=Severity.ERROR,
    summary="experts are balanced where there are experts",
    why="A loss that nothing adds to would be taken for one that keeps experts evenly used.",
    check=_check,
)
