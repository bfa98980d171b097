"""Builds records from parsed JSON: a value that a field does not allow is refused where it is read."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def build(record: type[T], data: Any) -> T:
    """Return a record from a mapping; TypeError for a missing or unknown key or another type of value."""
    if not isinstance(data, Mapping):
        raise TypeError(f"{record.__name__} is made of a mapping, not of {data!r}")
    hints: dict[str, Any] = _hints(record)  # type: ignore[arg-type]  # a class is hashable
    if unknown := data.keys() - hints.keys():
        raise TypeError(f"{record.__name__} has no field {min(unknown)}")
    return record(**{name: _value(value, hints[name], name) for name, value in data.items()})


@functools.cache
def _hints(record: Any) -> dict[str, Any]:
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record)}


def _value(value: Any, hint: Any, name: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(value, arguments, name)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_value(item, arguments[0], name) for item in value)
    if origin is dict and isinstance(value, dict):
        return {key: _value(item, arguments[1], name) for key, item in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value)
    # JSON writes 2.0 as 2, and true is no number.
    if hint is Any or type(value) is hint or (hint is float and type(value) is int):
        return value
    raise TypeError(f"{name} is {value!r}")


def _one_of(value: Any, hints: tuple[Any, ...], name: str) -> Any:
    if type(value) in hints:
        return value
    # Of several kinds, all are plain: only one alone may be built.
    return _value(value, next(hint for hint in hints if hint is not type(None)), name)
