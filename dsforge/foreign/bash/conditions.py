"""`[ ... ]` and `[[ ... ]]` where the script itself says what they come to."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from dsforge.foreign.bash.text import Text

if TYPE_CHECKING:
    from tree_sitter import Node

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}
_WHOLE = re.compile(r"-?[0-9]{1,39}")
_PATTERN = set("*?[")


def holds(node: Node, text: Callable[[Node], Text]) -> bool | None:
    """Return what a condition comes to, None where that is known only where the script runs."""
    match node.type:
        case "test_command" | "parenthesized_expression" if len(node.named_children) == 1:
            return holds(node.named_children[0], text)
        case "negated_command" if len(node.named_children) == 1:
            return _not(holds(node.named_children[0], text))
        case "unary_expression":
            return _one(node, text)
        case "binary_expression":
            return _two(node, text)
        case "list":
            return _both(node, text, decides=any(one.type == "||" for one in node.children))
    return None


def _not(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _one(node: Node, text: Callable[[Node], Text]) -> bool | None:
    act, inner = node.children[0], node.children[-1]
    if act.type == "!":
        return _not(holds(inner, text))
    word = act.text.decode() if act.text else ""
    if word not in ("-z", "-n"):
        return None
    found = text(inner)
    return None if found.is_open else bool(found.chars) == (word == "-n")


def _both(node: Node, text: Callable[[Node], Text], *, decides: bool) -> bool | None:
    """Return what two conditions come to of which one that is `decides` is enough."""
    both = (holds(node.children[0], text), holds(node.children[-1], text))
    if decides in both:
        return decides
    return None if None in both else not decides


def _two(node: Node, text: Callable[[Node], Text]) -> bool | None:
    left, act, right = node.children[0], node.children[1], node.children[-1]
    word = act.text.decode() if act.text else ""
    if word in ("&&", "||", "-a", "-o"):
        return _both(node, text, decides=word in ("||", "-o"))
    if word not in (*_NUMBERS, "=", "==", "!="):
        return None
    one, other = text(left), text(right)
    if one.is_open or other.is_open:
        return None
    a, b = str(one), str(other)
    if word in _NUMBERS:
        is_number = all(_WHOLE.fullmatch(part) for part in (a, b))
        return _NUMBERS[word](int(a), int(b)) if is_number else None
    if _PATTERN & set(b):
        return None
    return (a == b) == (word != "!=")
