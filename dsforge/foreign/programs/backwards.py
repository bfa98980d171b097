"""The expressions of a flavour's data file read backwards: from what an option is to what a recipe says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import Any


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def is_constant(text: str) -> bool:
    """Tell whether an expression asks for nothing."""
    return isinstance(_parsed(text), ast.Constant)


def constant(text: str) -> Any:
    """Return the value of an expression that asks for nothing."""
    return ast.literal_eval(_parsed(text))


def unknown(text: str) -> str | None:
    """Return the one name that an expression can be solved for; `optimizer.betas[0]` names an item."""
    node = _parsed(text)
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
        node = node.left
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node = node.operand
    return _name(node)


def solved(text: str, value: Any) -> Any:
    """Return what the unknown of an expression is where the expression is a value; None where nothing is.

    Sums and differences with a constant, and negations, are turned round.
    """
    node = _parsed(text)
    if isinstance(node, ast.UnaryOp):
        return not value
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
        by: Any = node.right.value
        match node.op:
            case ast.Sub():
                return value + by
            case ast.Add():
                return value - by
        return None
    return value


def follows(text: str, truth: bool) -> Iterator[tuple[str, Any]]:
    """Yield what a recipe says for certain where a condition of the file is true, or false."""
    yield from _follows(_parsed(text), truth=truth)


def _follows(node: ast.expr, *, truth: bool) -> Iterator[tuple[str, Any]]:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _follows(operand, truth=not truth)
        case ast.BoolOp(op=op, values=parts):
            if truth == isinstance(op, ast.And):
                for part in parts:
                    yield from _follows(part, truth=truth)
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=value)]):
            name = _name(left)
            if truth and name is not None:
                yield name, value
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[ast.Constant(value=value)]):
            name = _name(left)
            if not truth and name is not None:
                yield name, value
        case ast.Name() | ast.Attribute():
            name = _name(node)
            if name is not None:
                yield name, truth


def _name(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=left, attr=attribute):
            before = _name(left)
            return f"{before}.{attribute}" if before else None
        case ast.Subscript(value=left, slice=ast.Constant(value=int() as index)):
            before = _name(left)
            return f"{before}[{index}]" if before else None
    return None
