"""Plain values as YAML text: one line, or the block form that people read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.recipe.document import KeyPath, parse_value

_PLAIN = re.compile(r"[A-Za-z0-9_./~+-][A-Za-z0-9_./~+ -]*(?<! )")
"""Text that needs no quotes even inside braces, unless it reads as something else."""


def flow_text(value: Any, quote: str | None = None) -> str:
    """Return a value on one line; text keeps to `quote` where one is given."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow_text(key)}: {flow_text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow_text(inner) for inner in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, int):
        return str(value)
    return _string_text(str(value), quote)


def _float_text(value: float) -> str:
    mantissa, exponent, power = repr(value).partition("e")
    # `1e-05` is text to readers of YAML 1.1; `1.0e-05` is a number to all.
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{power}" if exponent else mantissa


def _string_text(text: str, quote: str | None) -> str:
    if quote == "'" and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    if quote is None and _PLAIN.fullmatch(text) and _reads_as_itself(text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _reads_as_itself(text: str) -> bool:
    try:
        return bool(parse_value(text, "value") == text)
    except DsforgeError:
        return False


def block_lines(data: dict[str, Any], at: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield (key path, line) of a mapping in block form; lists and empty mappings stay on their line."""
    for key, value in data.items():
        path = (*at, key)
        head = f"{'  ' * len(at)}{flow_text(key)}:"
        if isinstance(value, dict) and value:
            yield path, head
            yield from block_lines(value, path)
        else:
            yield path, f"{head} {flow_text(value)}"
