"""Reads the records that `dsforge tune` writes."""

from __future__ import annotations

from typing import Any, TypeVar

from dsforge.records.figures import shown
from dsforge.records.typed import build

T = TypeVar("T")


def measured_record(record: type[T], data: Any, kind: str, version: int, command: str) -> T:
    """Return the record in parsed JSON; ValueError, in words and with the path of what is wrong."""
    if not isinstance(data, dict) or data.get("kind") != kind:
        raise ValueError(f"is not what `{command}` writes")
    if (found := data.get("schema_version")) != version:
        raise ValueError(f"has schema version {shown(found)}, this build reads {version}")
    try:
        return build(record, data)
    except TypeError as error:
        raise ValueError(f"is not whole: {error}") from None
