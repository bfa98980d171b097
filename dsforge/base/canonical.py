"""JSON: canonical when written, the same bytes on every machine; one kind of error when read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any

_DEEPEST = 100
"""Lists and mappings around a value: more than any file holds, less than Python's own recursion takes."""


def dumps(value: Any) -> str:
    """Return indented JSON with sorted keys and a final newline; NaN raises ValueError."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def loads(text: str | bytes, **hooks: Any) -> Any:
    """Return what a JSON text says; ValueError for one that cannot be read, or is nested too deeply."""
    try:
        value = json.loads(text, **hooks)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, dict | list)]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def dump_line(value: Any) -> str:
    """Return one JSON line, keys in insertion order, for append-only streams; NaN and infinity are null."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite_or_none(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text + "\n"


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite_or_none(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite_or_none(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sha256_text(text: str) -> str:
    """Return the hexadecimal SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_value(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON."""
    return sha256_text(dumps(value))
