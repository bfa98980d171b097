"""Quantities as people write them: `4M tokens`, `80GiB`, `15m`, `13B`."""

from __future__ import annotations

import re
from fractions import Fraction

_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
_BYTES = {
    "B": 1,
    **{f"{p}B": 10 ** (3 * i) for i, p in enumerate("KMGT", start=1)},
    **{f"{p}iB": 2 ** (10 * i) for i, p in enumerate("KMGT", start=1)},
}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
_COUNT = re.compile(_NUMBER + r"\s*([KMBGTkmbgt]?)(?:\s*(token|sample|step)s?)?")
_SIZE = re.compile(_NUMBER + r"\s*([KMGT]i?B|B)")
_LONGEST = 40
"""Digits of a number, and its largest power of ten: what is beyond is no quantity of this field."""
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhd])+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def parse_count(text: str, unit: str | None = None) -> int:
    """Return a whole number from `13B`, `1e6` or, of `unit` "token", from `4M tokens`.

    ValueError when it is not whole, or counts something else: 4M tokens are not 4M samples.
    """
    match = _COUNT.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a count such as 1000 or 4M{f' {unit}s' if unit else ''}")
    if match[3] and match[3] != unit:
        raise ValueError(f"{text!r} counts {match[3]}s" + (f", not {unit}s" if unit else ""))
    value = _exact(match[1], text) * _DECIMAL[match[2].upper()]
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number")
    return int(value)


def _exact(number: str, text: str) -> Fraction:
    """Return a decimal number without rounding: 2.3 times a million is a whole number."""
    exponent = number.lower().partition("e")[2] or "0"
    if len(number) > _LONGEST or abs(int(exponent)) > _LONGEST:
        raise ValueError(f"{text[:_LONGEST]!r} is out of range")
    return Fraction(number)


def parse_bytes(text: str) -> int:
    """Return bytes from `80GiB` (powers of two) or `80GB` (powers of ten)."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size such as 80GiB or 512MB")
    size: Fraction = _exact(match[1], text) * _BYTES[match[2]]
    return round(size)


def parse_seconds(text: str) -> float:
    """Return seconds from `15m`, `90s`, `1h30m` or `2d`."""
    if not _DURATION.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not a duration such as 90s, 15m or 1h30m")
    return sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(text))


def format_bytes(count: float) -> str:
    """Return bytes for people: `38.3 GB` in decimal units, as papers and vendors count."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}" if count / size < 1000 else f"{count / size:.0f} {unit}"
    return f"{count:.0f} B"


def format_count(count: float) -> str:
    """Return a parameter or token count for people: `124.4M`, `8.03B`."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.4g}{unit}"
    return f"{count:.0f}"


def format_seconds(seconds: float) -> str:
    """Return a duration for people: `42s`, `3m05s`, `2h10m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
