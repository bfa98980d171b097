"""DSF115: validation has its data, its steps and whole batches, or nothing of it is set."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    train, data, size = facts.recipe.train, facts.recipe.data, facts.recipe.batch.global_size
    if not train.eval_every:
        every = max(1, (facts.steps or 1) // 10)
        idle = {"data.valid": data and data.valid, "train.eval_samples": train.eval_samples}
        for key in (key for key, value in idle.items() if value):
            yield Found(
                f"{key} is set and train.eval_every is 0: nothing would be validated",
                key,
                "say after how many steps, or leave it out",
                Fix("train.eval_every", every),
            )
        return
    if data is not None and data.valid is None:
        yield Found(
            f"validation every {train.eval_every} steps, and no data to validate on",
            "train.eval_every",
            "name data.valid, or validate never",
            Fix("train.eval_every", 0),
        )
    if train.eval_samples is not None and train.eval_samples % size:
        whole = -(-train.eval_samples // size) * size
        yield Found(
            f"a validation of {train.eval_samples} samples is not whole batches of {size}",
            "train.eval_samples",
            f"a multiple of {size}",
            Fix("train.eval_samples", whole),
        )


RULE = Rule(
    code="DSF115",
    name="validation",
    severity=Severity.ERROR,
    summary="validation has its data, its steps and whole batches, or nothing of it is set",
    why="Validation data without steps would be ignored, and steps without data have nothing to measure; "
    "only whole global batches are the same samples in every layout.",
    check=_check,
)
