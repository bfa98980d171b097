"""Turns a pydantic fault into what, why and the edit that mends it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dsforge.recipe.document import KeyPath
from dsforge.recipe.fields import fields
from dsforge.recipe.patterns import WORDS
from dsforge.recipe.vocabulary import few_keys, nearest


def explain(fault: Mapping[str, Any], data: dict[str, Any]) -> tuple[KeyPath, str, str]:
    """Return (key path, message, hint) of one pydantic error."""
    path = _yaml_path(fault["loc"], data, missing=fault["type"] == "missing")
    dotted = _dotted(path) or "the recipe"
    if fault["type"] == "extra_forbidden":
        near = nearest(path)
        listed = few_keys(path[:-1])
        legal = (
            f"`{_dotted(path[:-1])}` takes {listed}" if listed else "`dsforge schema` lists the legal keys"
        )
        hint = f"did you mean `{near}`?" if near else legal
        return path, f"unknown key `{dotted}`", hint
    if fault["type"] == "missing" and path and isinstance(path[-1], int):
        of = _dotted(path[:-1])
        values = f"{path[-1]} value{'' if path[-1] == 1 else 's'}"
        return path[:-1], f"`{of}` has {values}, which is too few", f"write one more value in `{of}`"
    if fault["type"] == "missing":
        return path, f"required key `{dotted}` is missing", f"add `{dotted}`"
    message, hint = _wrong_value(fault, path, dotted)
    return path, message, hint


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path)


_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
_LENGTHS = {
    "too_short": ("at least", "min_length", "item"),
    "too_long": ("at most", "max_length", "item"),
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
}


_ITEM = re.compile(r"(\.[0-9]+)+$")


def _wrong_value(fault: Mapping[str, Any], path: KeyPath, dotted: str) -> tuple[str, str]:
    kind = fault["type"]
    context = fault.get("ctx", {})
    secret = dotted.startswith("launch.env.")
    is_what = f"`{dotted}` is {'not legal' if secret else _show(fault.get('input'))}"
    if kind in ("literal_error", "enum"):
        return is_what, f"one of {context.get('expected', 'the legal values')}"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        keys = few_keys(path)
        listed = f": {keys}" if keys else ""
        return f"{is_what}, not a section", f"write `{dotted}:` and its keys below it{listed}"
    if kind == "value_error":
        hint = getattr(context.get("error"), "hint", None)
        return f"`{dotted}`: {context.get('error', fault['msg'])}", hint or _what_it_takes(dotted)
    return is_what, _bound(kind, context) or _own_words(str(fault["msg"]))


def _bound(kind: str, context: Mapping[str, Any]) -> str | None:
    """Return what a bound or a form asks for; None for another kind of fault."""
    if kind == "string_pattern_mismatch":
        return WORDS[context["pattern"]]
    if kind in _LENGTHS:
        words, bound, one = _LENGTHS[kind]
        count = context[bound]
        return f"it must have {words} {count} {one}{'' if count == 1 else 's'}"
    if kind in _LIMITS:
        words, bound = _LIMITS[kind]
        return f"it must be {words} {context.get(bound)}"
    return None


def _own_words(message: str) -> str:
    reason = message.removeprefix("Input ").rstrip(".").replace("a valid tuple", "a list")
    return f"it {reason}" if reason.startswith("should") else reason


def _what_it_takes(dotted: str) -> str:
    """Return the form of a key's values with an example, as the reference of keys says it."""
    known = fields().get(_ITEM.sub("", dotted))
    if known is None or known.kind == "text":
        return f"correct the value of `{dotted}`"
    return f"it takes {known.kind}"


def _show(value: Any) -> str:
    text = repr(value)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"


def _yaml_path(loc: tuple[str | int, ...], data: Any, *, missing: bool) -> KeyPath:
    """Drop pydantic's union and validator marks, which are no keys of the recipe."""
    path: list[str | int] = []
    node = data
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if _holds(node, part):
            path.append(part)
            node = node[part]
        elif last and missing:
            path.append(part)
    return tuple(path)


def _holds(node: Any, part: str | int) -> bool:
    if isinstance(node, list):
        return isinstance(part, int) and 0 <= part < len(node)
    return isinstance(node, dict) and part in node
