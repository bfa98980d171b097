"""The last words of ranks that failed, the first failure first, and what many of them say alike told once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dsforge.records.streams import ExitRecord

_TRACEBACK = "Traceback (most recent call last)"
_OWN = re.compile(
    r"0x[0-9a-fA-F]+|\b(?:rank|pid|PID|Rank)[ :=]*[0-9]+|[0-9]+(?:\.[0-9]+){3}\]?(?::[0-9]+)?"
    r"|\b[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
)
"""What differs between ranks that fail alike: addresses, times, and who they are."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a rank said last, from its traceback on, and which other ranks said the same."""

    rank: int
    host: str | None
    lines: tuple[str, ...]
    same: tuple[int, ...] = ()


def fold(
    records: Iterable[ExitRecord], hosts: Mapping[int, str], first: Failure | None = None
) -> tuple[Failure, ...]:
    """Return the failures among exit records in their order; `first` is one that comes before them all."""
    found: dict[int, Failure] = {}
    same: dict[int, list[int]] = {}
    if first is not None:
        found[_likeness(first.lines)] = first
    for record in records:
        if record.cause not in ("exception", "signal") or (first is not None and record.rank == first.rank):
            continue
        lines = from_traceback(record.tail)
        key = _likeness(lines)
        if key in found:
            same.setdefault(key, []).append(record.rank)
        else:
            found[key] = Failure(record.rank, hosts.get(record.rank), lines)
    return tuple(
        Failure(one.rank, one.host, one.lines, tuple(sorted(same.get(key, ())))) for key, one in found.items()
    )


def from_traceback(tail: Sequence[str]) -> tuple[str, ...]:
    """Return what a rank said from its first traceback on, all of it where there is none."""
    start = next((number for number, text in enumerate(tail) if _TRACEBACK in text), 0)
    return tuple(tail[start:])


def _likeness(lines: Sequence[str]) -> int:
    return hash(_OWN.sub("#", "\n".join(lines)))
