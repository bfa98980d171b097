"""The keys of a recipe whose values a trainer does not honour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsforge.catalog.engines.capabilities import Capabilities, Honoured


def unhonoured(trainer: Capabilities, recipe: Any) -> Iterator[tuple[str, Any, Honoured]]:
    """Yield each such key, its value and what the trainer takes."""
    for key, honoured in trainer.honours.items():
        value: Any = recipe
        for part in key.split("."):
            value = getattr(value, part, None)
        if not trainer.takes(key, value):
            yield key, value, honoured
