"""DSF791: a shape's experts are ones that its layers can have."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Fix, Severity
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_AT = "model.experts"


def _check(facts: Facts) -> Iterator[Found]:
    section = facts.recipe.model
    if isinstance(section, str) or section.experts is None:
        return
    experts, layers = section.experts, section.layers
    dense = set(experts.dense_layers)
    if experts.active > experts.count:
        yield Found(
            f"{experts.active} experts a token, and a layer has {experts.count}",
            f"{_AT}.active",
            f"at most {experts.count}",
            Fix(f"{_AT}.active", experts.count),
        )
    if len(dense) < len(experts.dense_layers) or any(layer >= layers for layer in dense):
        yield Found(
            f"dense_layers are not distinct layers from 0 to {layers - 1}",
            f"{_AT}.dense_layers",
            "each once, counted from 0",
            Fix(f"{_AT}.dense_layers", sorted(layer for layer in dense if layer < layers)),
        )
    elif len(dense) == layers:
        yield Found(
            "dense_layers are all layers: none has experts",
            f"{_AT}.dense_layers",
            "remove model.experts, or some of its dense_layers",
        )


RULE = Rule(
    code="DSF791",
    name="experts",
    severity=Severity.ERROR,
    summary="a shape's experts are ones that its layers can have",
    why="A router chooses among experts of its own layer, each once a token.",
    check=_check,
)
