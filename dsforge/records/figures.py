"""What numbers in a file can be: annotations of a record's fields, kept where the file is read."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `least` to `most`; `or_zero`: 0, too. NaN is in none."""

    least: float
    most: float
    or_zero: bool = False

    def __contains__(self, value: Any) -> bool:
        return self.least <= value <= self.most or (self.or_zero and value == 0)

    def __str__(self) -> str:
        return f"{'0, or ' if self.or_zero else ''}{self.least:g} to {self.most:g}"


class Sane:
    """Values as JSON has them whose numbers, at any depth, are finite and not endless."""

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, dict | list):
            return all(inner in self for inner in (value.values() if isinstance(value, dict) else value))
        return not isinstance(value, int | float) or abs(value) <= _MOST_TOLD

    def __str__(self) -> str:
        return f"of numbers up to {_MOST_TOLD:g}"


_MOST_TOLD = 10**15
_NANOSECOND, _MOST_SECONDS = 1e-9, 1e6
Seconds = Annotated[float, Range(_NANOSECOND, _MOST_SECONDS)]
"""What a clock told, above nothing and below two weeks."""
SomeSeconds = Annotated[float, Range(_NANOSECOND, _MOST_SECONDS, or_zero=True)]
"""The same of what may be too short for the clock."""
PredictedSeconds = Annotated[float, Range(_NANOSECOND, 1e15)]
Share = Annotated[float, Range(0, 1e9)]
"""A part of something, or a multiple of it."""
Bytes = Annotated[int, Range(0, 2**60)]
Count = Annotated[int, Range(1, 10**12)]
Degree = Annotated[int, Range(0, 10**12)]
"""A count of a layout, or its stage of ZeRO."""


Told = Annotated[Any, Sane()]
"""What is compared and shown, of any kind."""


def shown(value: Any) -> str:
    """Return what a message shows of a value, however long it is."""
    return reprlib.repr(value)
