"""`$(( ... ))`: whole-number arithmetic of a shell."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_MAX_BITS = 256
_WHOLE = re.compile(r"-?[0-9]{1,39}")


def _divided(left: int, right: int) -> int:
    """Divide as a shell does, towards zero."""
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": lambda left, right: left - right * _divided(left, right),
}


def computed(node: Node, value: Callable[[Node], str | None]) -> int | None:
    """Return what an expression comes to, None where it is not known; `value` gives a variable's text."""
    found = _computed(node, value)
    return found if found is not None and found.bit_length() <= _MAX_BITS else None


def _computed(node: Node, value: Callable[[Node], str | None]) -> int | None:
    inner = node.named_children
    match node.type:
        case "arithmetic_expansion" | "parenthesized_expression" if len(inner) == 1:
            return computed(inner[0], value)
        case "binary_expression" if len(inner) == 2:
            act = _BINARY.get(node.children[1].type)
            left, right = (computed(one, value) for one in inner)
            if act is None or left is None or right is None or (right == 0 and node.children[1].type in "/%"):
                return None
            return act(left, right)
        case "unary_expression" if len(inner) == 1 and node.children[0].type == "-":
            found = computed(inner[0], value)
            return -found if found is not None else None
        case "number" | "word" | "variable_name" | "simple_expansion" | "expansion":
            text = (value(node) or "").strip()
            return int(text) if _WHOLE.fullmatch(text) else None
    return None
