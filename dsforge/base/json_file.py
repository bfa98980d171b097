"""JSON files that others wrote, read with bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsforge.base.canonical import loads
from dsforge.base.files import read_bounded


def read_object(path: Path, most_bytes: int) -> dict[str, Any]:
    """Return the object of a JSON file in UTF-8, with or without a byte-order mark.

    OSError when it cannot be read; ValueError, in words, when it is not one JSON object of distinct keys.
    """
    return parse_object(read_bounded(path, most_bytes).removeprefix("\ufeff"))


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Return the object that a JSON text holds; ValueError, in words, when it holds none."""
    values = loads(text, object_pairs_hook=_distinct)
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return values


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice")
    return values
