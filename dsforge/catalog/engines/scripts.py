"""What a program does with command lines that its parser takes, from its data file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from ruamel.yaml import YAML

from dsforge.base.errors import Severity


@dataclass(frozen=True, slots=True)
class Trap:
    """Options that lead to a failure or a silent change: when, which option, why, and what mends it."""

    when: str
    option: str
    why: str
    hint: str
    severity: Severity = Severity.ERROR


@cache
def _table() -> dict[str, Any]:
    file = resources.files("dsforge.catalog.engines") / "options" / "scripts.yaml"
    table: dict[str, Any] = YAML(typ="safe", pure=True).load(file.read_text("utf-8"))
    return table


@cache
def counts(flavour: str) -> frozenset[str]:
    """Return a program's options or keys that count something: no number below 1 makes sense."""
    return frozenset(_table()["counts"].get(flavour, ()))


@cache
def traps(flavour: str) -> tuple[Trap, ...]:
    """Return what a flavour is known to do, in the order of the file."""
    table = _table()
    rows = [row for one in table[flavour] for row in (one if isinstance(one, list) else [one])]
    return tuple(Trap(**{**row, "severity": Severity(row.get("severity", "error"))}) for row in rows)
