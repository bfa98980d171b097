"""DSF105: RoPE turns pairs of channels."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_ROUNDING = 1e-6
"""Of a fraction written in decimals. The program of a `config.json` cuts off what is no whole channel."""


def _check(facts: Facts) -> Iterator[Found]:
    shape, section = facts.shape, facts.recipe.model
    if shape.traits.position != "rope":
        return
    asked = shape.head_dim * shape.traits.rotary_fraction
    turned = int(asked)
    if shape.head_dim % 2:
        yield Found(
            f"a head is {shape.head_dim} wide, an odd number",
            "model.head_dim" if not isinstance(section, str) and section.head_dim else "model.heads",
            "choose heads so that hidden / heads is even",
        )
    elif not isinstance(section, str) and abs(asked - turned) > _ROUNDING:
        low = turned - turned % 2
        whole = [pairs for pairs in (low, low + 2) if 0 < pairs <= shape.head_dim]
        yield Found(
            f"RoPE would turn {asked:g} of the {shape.head_dim} channels of a head",
            "model.rotary_fraction" if section.rotary_fraction else "model.heads",
            " or ".join(f"`rotary_fraction: {pairs / shape.head_dim:.12g}` turns {pairs}" for pairs in whole),
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
