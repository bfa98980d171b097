"""Field types that take units and refuse look-alikes (`true` for 1, `"8"` for 8)."""

from __future__ import annotations

import math
import os
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from dsforge.base.units import parse_count, parse_seconds
from dsforge.recipe import patterns
from dsforge.recipe.hinted import HintedError

_MAX_COUNT = 10**18
"""Beyond any model, corpus or cluster; keeps products inside what JSON readers hold exactly."""


def _count_of(unit: str | None) -> BeforeValidator:
    def check(value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("is true/false, not a count")
        if isinstance(value, str):
            return parse_count(value, unit)
        if isinstance(value, float):
            if not math.isfinite(value) or not value.is_integer():
                raise ValueError(f"{value} is not a whole number")
            return int(value)
        return value

    return BeforeValidator(check)


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


def _integer_schema(minimum: int, unit: str | None) -> WithJsonSchema:
    word = rf"(\s*{unit}s?)?" if unit else ""
    pattern = rf"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*[KMBGTkmbgt]?{word}$"
    example = f"2K {unit}s" if unit else "2K"
    text = {"type": "string", "pattern": pattern, "examples": [example]}
    return WithJsonSchema({"anyOf": [{"type": "integer", "minimum": minimum}, text]})


def _counted(minimum: int, most: int, unit: str | None) -> Any:
    bounds = Field(strict=True, ge=minimum, le=most)
    return Annotated[int, bounds, _count_of(unit), _integer_schema(minimum, unit)]


PositiveCount = _counted(1, _MAX_COUNT, None)
"""A whole number from 1, with an optional multiplier: 1000, `13B`."""

Count = _counted(0, _MAX_COUNT, None)
"""A whole number from 0, with an optional multiplier."""

Tokens = _counted(1, 10**16, "token")
"""A number of tokens: `300B tokens`. The limit is a thousand times the largest corpus."""

Samples = _counted(1, 10**9, "sample")
"""A number of samples: `512 samples`."""

Steps = _counted(1, 10**9, "step")
"""A number of optimizer steps: `1000 steps`."""

StepsOrNone = _counted(0, 10**9, "step")
"""A number of optimizer steps, where 0 means never."""

MOST_DEVICES = 1_048_576
"""Hosts, or devices of one, beyond any cluster."""

Degree = Annotated[int, Field(strict=True, ge=1, le=MOST_DEVICES)]
"""A parallel degree or a number of hosts or devices."""

DURATION_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?[smhd])+$", "examples": ["1h30m"]},
    ]
}
"""The JSON Schema of a duration."""

Seconds = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False, le=10**9),
    BeforeValidator(_seconds),
    WithJsonSchema(DURATION_SCHEMA),
]
"""A duration: `15m`, `1h30m`, or plain seconds; 0 switches the limit off."""


def _no_fraction(value: float) -> float:
    if 0 < value < 1:
        raise ValueError(
            f"{value:g} s is shorter than any step is known to take; write 1s or more, 0 for off"
        )
    return value


SecondsOrOff = Annotated[Seconds, AfterValidator(_no_fraction)]
"""A duration of one second at least, or 0."""


def _number(
    *, ge: float | None = None, gt: float | None = None, le: float | None = None, lt: float | None = None
) -> Any:
    limits = Field(strict=True, allow_inf_nan=False, ge=ge, gt=gt, le=le, lt=lt)
    return Annotated[float, limits, BeforeValidator(_plain_number)]


Ratio = _number(ge=0, lt=1)
"""A number in [0, 1)."""

NonNegative = _number(ge=0, le=1e12)
"""A finite number from 0."""

Epsilon = _number(ge=1e-30, le=1)
"""A small number that keeps a denominator from zero."""

Rate = _number(gt=0, le=100)
"""A learning rate."""

RateOrZero = _number(ge=0, le=100)
"""A learning rate or decay, or none."""

Positive = _number(ge=1e-9, le=1e12)
"""A finite number above 0, and far enough from it to divide others by."""

Name = Annotated[str, Field(strict=True, min_length=1, max_length=200, pattern=patterns.ANY_TEXT)]
"""Text that names something; it may hold any character a file may, except NUL."""


def _no_home(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("~"):
        raise ValueError("`~` is not expanded in a recipe; write the whole path")
    return value


PathText = Annotated[
    str,
    Field(strict=True, min_length=1, max_length=4096, pattern=patterns.ONE_LINE),
    BeforeValidator(_no_home),
]
"""A path as written, relative to the recipe's folder."""


def _inside(value: Any) -> Any:
    if isinstance(value, str) and os.path.normpath(value).split("/")[0] in ("", ".", ".."):
        raise ValueError("is no file in the folder of external.path; write its path from there")
    return value


def _no_option(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("-"):
        raise ValueError(f"begins like an option of a program; write `./{value}`")
    return value


FolderText = Annotated[PathText, BeforeValidator(_no_option)]
"""A path that programs are handed."""

EntryText = Annotated[Name, BeforeValidator(_inside), BeforeValidator(_no_option)]
"""A file's path from a folder that it does not leave."""

Flag = Annotated[bool, Field(strict=True)]
"""true or false, and nothing that looks like them."""

NotBoolean = BeforeValidator(_plain_number)
"""Keeps `true` from passing for 1."""

EnvName = Annotated[str, Field(strict=True, pattern=patterns.VARIABLE, max_length=200)]
"""Name of an environment variable."""


def _quoted(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is true/false; write the text the program expects, in quotes")
    if isinstance(value, int | float):
        raise HintedError("is a number, which YAML rewrites (010, 1e3)", "write the text in quotes")
    return value


Quoted = BeforeValidator(_quoted)
"""Keeps YAML's reading of a text as a number or a truth value from changing it."""


def _argument(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        raise ValueError("write it as text: an option of the program, or a value of one")
    return str(value) if isinstance(value, int | float) else value


Argument = Annotated[
    str,
    Field(pattern=patterns.ANY_TEXT_OR_NONE, max_length=32_768),
    BeforeValidator(_argument),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
]
"""One argument of a program, any text; of a recipe a number is taken as it is written there."""

EnvValue = Annotated[
    str,
    Field(pattern=patterns.ONE_LINE_OR_NONE, max_length=32_768),
    Quoted,
]
"""Value of an environment variable: one line of text."""
