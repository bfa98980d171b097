"""The expressions of a flavour's data file: names of values, comparisons and arithmetic, nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
    ast.Not: operator.not_,
}
PASSED = "argument."
"""Names of what the user passes on to the program; one that is not passed is None."""


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression; a name or operator that is not known is a bug of the data file."""
    return _value(_parsed(text), values)


@cache
def names(text: str) -> tuple[str, ...]:
    """Return the dotted names in an expression, each once, in the order they stand in it."""
    found: dict[str, None] = {}
    _collect(_parsed(text), found)
    return tuple(found)


def _collect(node: ast.AST, found: dict[str, None]) -> None:
    if (name := _dotted(node)) is not None:
        found[name] = None
        return
    for child in ast.iter_child_nodes(node):
        _collect(child, found)


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (left := _dotted(node.value)) is not None:
        return f"{left}.{node.attr}"
    return None


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:  # noqa: PLR0911 - one for each kind of node
    if (name := _dotted(node)) is not None:
        return values.get(name) if name.startswith(PASSED) else values[name]
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, values) for item in items]
        case ast.Subscript(value=items, slice=ast.Constant(value=index)):
            return _value(items, values)[index]
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_value(operand, values))
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.BoolOp(op=op, values=parts):
            return _first(parts, values, truth=isinstance(op, ast.Or))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, values) else orelse, values)
    raise AssertionError(f"not an expression of a flavour: {ast.unparse(node)}")


def _first(parts: list[ast.expr], values: Mapping[str, Any], *, truth: bool) -> Any:
    """Return the first value of this truth, else the last, as Python's `or` and `and` do."""
    value: Any = None
    for part in parts:
        value = _value(part, values)
        if bool(value) is truth:
            break
    return value
