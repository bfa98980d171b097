"""Turns a pydantic fault into what, why and the edit that mends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsforge.recipe.document import KeyPath
from dsforge.recipe.vocabulary import nearest


def explain(fault: Mapping[str, Any], data: dict[str, Any]) -> tuple[KeyPath, str, str]:
    """Return (key path, message, hint) of one pydantic error."""
    path = _yaml_path(fault["loc"], data, missing=fault["type"] == "missing")
    dotted = ".".join(str(part) for part in path) or "the recipe"
    kind = fault["type"]
    context = fault.get("ctx", {})
    value = _show(fault.get("input"))
    if kind == "extra_forbidden":
        near = nearest(path)
        hint = f"did you mean `{near}`?" if near else "`dsforge schema` lists the legal keys"
        return path, f"unknown key `{dotted}`", hint
    if kind == "missing":
        return path, f"required key `{dotted}` is missing", f"add `{dotted}`"
    if kind in ("literal_error", "enum"):
        return path, f"`{dotted}` is {value}", f"one of {context.get('expected', 'the legal values')}"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return path, f"`{dotted}` is {value}, not a section", f"write `{dotted}:` and its keys below it"
    limits = {
        "greater_than_equal": ("at least", "ge"),
        "greater_than": ("more than", "gt"),
        "less_than_equal": ("at most", "le"),
        "less_than": ("less than", "lt"),
    }
    if kind in limits:
        words, bound = limits[kind]
        return path, f"`{dotted}` is {value}", f"it must be {words} {context.get(bound)}"
    if kind == "value_error":
        reason = str(context.get("error", fault["msg"]))
        return path, f"`{dotted}`: {reason}", f"correct the value of `{dotted}`"
    message = str(fault["msg"]).removeprefix("Input ").rstrip(".")
    return path, f"`{dotted}` is {value}", f"it {message}" if message.startswith("should") else message


def _show(value: Any) -> str:
    text = repr(value)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"


def _yaml_path(loc: tuple[str | int, ...], data: Any, *, missing: bool) -> KeyPath:
    """Drop pydantic's union and validator marks, which are no keys of the recipe."""
    path: list[str | int] = []
    node = data
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if (isinstance(node, dict) and part in node) or (
            isinstance(node, list) and isinstance(part, int) and 0 <= part < len(node)
        ):
            path.append(part)
            node = node[part]
        elif last and missing:
            path.append(part)
    return tuple(path)
