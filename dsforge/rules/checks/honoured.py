"""DSF140: the trainer honours every key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsforge.base.errors import Fix, Severity
from dsforge.rules.builders import builders, in_words
from dsforge.rules.facts import Facts
from dsforge.rules.honours import unhonoured
from dsforge.rules.registry import Found, Rule

_OF_EXPERTS = ("parallel.ep", "train.balance_loss", "train.balance_over")


def _check(facts: Facts) -> Iterator[Found]:
    if facts.recipe.trainer == "external" and facts.recipe.external is None:
        return  # no program is named (DSF142) whose keys these would be
    needless = facts.shape.experts is not None and "experts" not in facts.capabilities.traits
    for key, value, honoured in unhonoured(facts.capabilities, facts.recipe):
        if needless and key in _OF_EXPERTS:
            continue  # of another trainer, which the model needs, it is none (DSF141)
        other = next((one for one in builders(facts) if facts.recipe.external is None), None)
        legal = " or ".join(f"`{_yaml(item)}`" for item in honoured.values)
        yield Found(
            f"`{key}: {_yaml(value)}` cannot be honoured: {honoured.why}",
            key,
            f"set {key} to {legal}" + (f", or {in_words(other, facts)}" if other else ""),
            Fix(key, honoured.values[0]),
        )


def _yaml(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


RULE = Rule(
    code="DSF140",
    name="honoured",
    severity=Severity.ERROR,
    summary="the trainer honours every key",
    why="A key that the trainer does not read would be ignored without a word.",
    check=_check,
)
