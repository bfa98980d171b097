"""DSF105: RoPE turns pairs of channels."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule


def _check(facts: Facts) -> Iterator[Found]:
    shape, section = facts.shape, facts.recipe.model
    if shape.traits.position != "rope":
        return
    turned = int(shape.head_dim * shape.traits.rotary_fraction)
    if shape.head_dim % 2:
        yield Found(
            f"a head is {shape.head_dim} wide, an odd number",
            "model.head_dim" if not isinstance(section, str) and section.head_dim else "model.heads",
            "choose heads so that hidden / heads is even",
        )
    elif turned % 2 or not 0 < turned <= shape.head_dim:
        yield Found(
            f"RoPE turns {turned} of the {shape.head_dim} channels of a head",
            "model.rotary_fraction"
            if not isinstance(section, str) and section.rotary_fraction
            else "model.heads",
            "choose heads and fraction so that their product is even",
        )


RULE = Rule(
    code="DSF105",
    name="head-dim-even",
    severity=Severity.ERROR,
    summary="RoPE turns pairs of channels",
    why="Rotary embeddings rotate channels in pairs; an odd head width has one left over.",
    check=_check,
)
