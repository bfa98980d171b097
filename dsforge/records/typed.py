"""Builds records from parsed JSON: a value that a field does not allow is refused where it is read."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from dsforge.records.figures import shown

T = TypeVar("T")


def build(record: type[T], data: Any, path: str = "") -> T:
    """Return a record from a mapping; TypeError for a missing or unknown key or a value that a field has not.

    `path`: where the mapping stands in a larger one, for messages.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"{path or record.__name__} is made of a mapping, not of {shown(data)}")
    hints: dict[str, Any] = _hints(record)  # type: ignore[arg-type]  # a class is hashable
    if unknown := data.keys() - hints.keys():
        raise TypeError(f"{path or record.__name__} has no field {min(unknown)}")
    made = {name: _value(value, hints[name], _join(path, name)) for name, value in data.items()}
    if missing := [name for name in _required(record) if name not in data]:  # type: ignore[arg-type]  # so it is
        raise TypeError(f"{path or record.__name__} lacks {missing[0]}")
    return record(**made)


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


@functools.cache
def _hints(record: Any) -> dict[str, Any]:
    hints = get_type_hints(record, include_extras=True)
    return {field.name: hints[field.name] for field in fields(record)}


@functools.cache
def _required(record: Any) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in fields(record)
        if field.default is MISSING and field.default_factory is MISSING
    )


def _value(value: Any, hint: Any, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        made, within = _value(value, arguments[0], path), arguments[1]
        if made not in within:
            raise TypeError(f"{path} is {shown(value)}, not {within}")
        return made
    if origin in (Union, types.UnionType):
        return _one_of(value, arguments, path)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_value(item, arguments[0], _join(path, at)) for at, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: _value(item, arguments[1], _join(path, key)) for key, item in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value, path)
    # JSON writes 2.0 as 2, and true is no number.
    if hint is Any or type(value) is hint or (hint is float and type(value) is int):
        return value
    raise TypeError(f"{path} is {shown(value)}")


def _one_of(value: Any, hints: tuple[Any, ...], path: str) -> Any:
    # Of several kinds, all are plain: only one alone may be built.
    kinds = [hint for hint in hints if _bare(hint) is type(value)] or [
        hint for hint in hints if hint is not type(None)
    ]
    return _value(value, kinds[0], path)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint
