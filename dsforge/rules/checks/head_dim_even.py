"""DSF105: RoPE turns pairs of channels."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    if facts.shape.traits.position == "rope" and facts.shape.head_dim % 2:
        yield Found(
            f"a head is {facts.shape.head_dim} wide, an odd number",
            "model.head_dim"
            if not isinstance(facts.recipe.model, str) and facts.recipe.model.head_dim
            else "model.heads",
            "choose heads so that hidden / heads is even",
        )


RULE = Rule(
    code="DSF105",
    name="head-dim-even",
    severity=Severity.ERROR,
    summary="RoPE turns pairs of channels",
    why="Rotary embeddings rotate channels in pairs; an odd head width has one left over.",
    check=_check,
)
