"""DSF108: a shape sets only what its architecture has."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Severity
from dsforge.recipe.vocabulary import removal
from dsforge.rules.facts import Facts
from dsforge.rules.registry import Found, Rule

_FOREIGN = {
    "learned": {"rope_theta": "a {} shape has learned positions, not RoPE"},
    "rope": {"max_positions": "a {} shape has RoPE, not a table of positions"},
}


def _check(facts: Facts) -> Iterator[Found]:
    section = facts.recipe.model
    if isinstance(section, str):
        return
    for key, why in _FOREIGN[facts.shape.traits.position].items():
        if getattr(section, key) is not None:
            message = f"model.{key} has no effect: {why.format(section.arch)}"
            yield Found(message, f"model.{key}", removal(f"model.{key}"))
    if section.ffn_hidden is not None and section.experts is not None and not section.experts.dense_layers:
        message = "model.ffn_hidden has no effect: all layers have experts, whose width is their own"
        yield Found(message, "model.ffn_hidden", removal("model.ffn_hidden"))


RULE = Rule(
    code="DSF108",
    name="shape-keys",
    severity=Severity.ERROR,
    summary="a shape sets only what its architecture has",
    why="A key that the model does not have would be ignored without a word.",
    check=_check,
)
