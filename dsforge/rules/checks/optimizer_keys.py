"""DSF806: every key of the optimizer is one that its type reads."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.layout.optimizers import READS
from dsforge.recipe.sections import OptimizerSection
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    optimizer, default = facts.recipe.optimizer, OptimizerSection()
    read = READS[optimizer.type]
    for key in sorted({key for keys in READS.values() for key in keys} - set(read)):
        if getattr(optimizer, key) != getattr(default, key):
            others = " or ".join(kind for kind, keys in READS.items() if key in keys)
            yield Found(
                f"{optimizer.type} reads no {key}",
                f"optimizer.{key}",
                f"leave it out, or use {others}",
                Fix(f"optimizer.{key}", _plain(getattr(default, key))),
            )


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


RULE = Rule(
    code="DSF806",
    name="optimizer-keys",
    severity=Severity.ERROR,
    summary="every key of the optimizer is one that its type reads",
    why="SGD has a momentum and no betas, AdamW and Lion betas and no momentum: the key would be ignored.",
    check=_check,
    plannable=True,
)
