"""`diff`: in what two recipes differ, by what the difference does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsforge.recipe.consequences import Consequence, consequence
from dsforge.recipe.resolved import leaves

SPELLING = "(text)"
"""Stands for comments, order and spelling, which hold no value."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: resolved values, whether the name was written, and the text where there is one."""

    data: dict[str, Any]
    is_named: bool
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs. None where a side does not have the key."""

    key: str
    a: Any
    b: Any
    consequence: Consequence

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {"key": self.key, "a": self.a, "b": self.b, "consequence": self.consequence.word}


def compare(a: Side, b: Side) -> list[Difference]:
    """Return the differences, the weightiest first."""
    left, right = _values(a, b), _values(b, a)
    found = [
        Difference(key, left.get(key), right.get(key), consequence(key))
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]
    are_texts = None not in (a.text, b.text)  # a lock has its keys sorted
    if not found and are_texts and _env_order(a) != _env_order(b):
        found.append(Difference("launch.env", _env_order(a), _env_order(b), Consequence.COSMETIC))
    if not found and are_texts and a.text != b.text:
        message = "comments, order or spelling"
        found.append(Difference(SPELLING, message, message, Consequence.COSMETIC))
    return sorted(found, key=lambda one: (-one.consequence, one.key))


def _values(side: Side, other: Side) -> dict[str, Any]:
    """Return values by key. A section that the other side has as one value stays one value."""
    data = dict(side.data)
    if not (side.is_named or other.is_named):
        data.pop("name", None)  # both are called after their files
    whole = {
        key: data.pop(key)
        for key in ("model", "data")
        if isinstance(data.get(key), dict) != isinstance(other.data.get(key), dict)
    }
    return {**whole, **{key: value for key, value in leaves(data) if value not in ({}, None)}}


def _env_order(side: Side) -> list[str]:
    return list(side.data["launch"]["env"])
