"""The resolved recipe: every value with its key, as plain data that loads again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsforge.recipe.model import Recipe


def resolved_data(recipe: Recipe) -> dict[str, Any]:
    """Return every value of a recipe, defaults written out."""
    return recipe.model_dump(mode="json", by_alias=True, exclude={"extends"})


def leaves(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value); lists and empty mappings are values."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
