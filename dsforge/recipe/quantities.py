"""Field types that take units and refuse look-alikes (`true` for 1, `"8"` for 8)."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from dsforge.base.units import parse_count, parse_seconds

_MAX_COUNT = 10**18
"""Beyond any model, corpus or cluster; keeps products inside what JSON readers hold exactly."""


def _count(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is true/false, not a count")
    if isinstance(value, str):
        return parse_count(value)
    if isinstance(value, float):
        if not math.isfinite(value) or not value.is_integer():
            raise ValueError(f"{value} is not a whole number")
        return int(value)
    return value


def _seconds(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is true/false, not a duration")
    if isinstance(value, str):
        return parse_seconds(value)
    return value


def _plain_number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is true/false, not a number")
    return value


def _integer_schema(minimum: int) -> WithJsonSchema:
    pattern = r"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*[KMBGTkmbgt]?(\s*(tokens?|samples?|steps?))?$"
    return WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": minimum}, {"type": "string", "pattern": pattern}]}
    )


PositiveCount = Annotated[
    int, Field(strict=True, ge=1, le=_MAX_COUNT), BeforeValidator(_count), _integer_schema(1)
]
"""A whole number from 1, with optional units: 1000, `4M tokens`."""

Count = Annotated[int, Field(strict=True, ge=0, le=_MAX_COUNT), BeforeValidator(_count), _integer_schema(0)]
"""A whole number from 0, with optional units."""

Degree = Annotated[int, Field(strict=True, ge=1, le=1_048_576)]
"""A parallel degree or a number of hosts or devices."""

Seconds = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, le=10**9),
    BeforeValidator(_seconds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?[smhd])+$"},
            ]
        }
    ),
]
"""A duration: `15m`, `1h30m`, or plain seconds; 0 switches the limit off."""

Ratio = Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False), BeforeValidator(_plain_number)]
"""A number in [0, 1)."""

NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False), BeforeValidator(_plain_number)]
"""A finite number from 0."""

Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), BeforeValidator(_plain_number)]
"""A finite number above 0."""

Name = Annotated[str, Field(strict=True, min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
"""Text that names something; it may hold any character a file may, except NUL."""

PathText = Annotated[str, Field(strict=True, min_length=1, max_length=4096, pattern=r"^[^\x00\n\r]+$")]
"""A path as written, relative to the recipe's folder."""

Flag = Annotated[bool, Field(strict=True)]
"""true or false, and nothing that looks like them."""

NotBoolean = BeforeValidator(_plain_number)
"""Keeps `true` from passing for 1."""

EnvName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
"""Name of an environment variable."""


def _env_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is true/false; write the text the program expects, in quotes")
    return str(value) if isinstance(value, int | float) else value


EnvValue = Annotated[
    str,
    Field(pattern=r"^[^\x00\n\r]*$", max_length=32_768),
    BeforeValidator(_env_value),
    WithJsonSchema({"type": ["string", "number"]}),
]
"""Value of an environment variable: one line of text."""
