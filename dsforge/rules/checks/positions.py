"""DSF112: sequences fit the learned positions."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    shape, seq_len = facts.shape, facts.recipe.batch.seq_len
    if shape.traits.position == "learned" and seq_len > shape.max_positions:
        yield Found(
            f"seq_len {seq_len} is longer than the model's {shape.max_positions} learned positions",
            "batch.seq_len",
            f"seq_len at most {shape.max_positions}",
            Fix("batch.seq_len", shape.max_positions),
        )


RULE = Rule(
    code="DSF112",
    name="positions",
    severity=Severity.ERROR,
    summary="sequences fit the learned positions",
    why="A position beyond the table has no embedding.",
    check=_check,
)
