"""The one error type a user's mistake raises, and the finding a rule returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dsforge.base.text import one_line, printable


class Severity(StrEnum):
    """How much a finding weighs: an error refuses the launch, a warning does not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is wrong: a spot in a file, or a host and rank."""

    file: str | None = None
    line: int | None = None
    column: int | None = None
    host: str | None = None
    rank: int | None = None

    def __str__(self) -> str:
        parts = []
        if self.file is not None:
            spot = self.file
            if self.line is not None:
                spot += f":{self.line}"
                if self.column is not None:
                    spot += f":{self.column}"
            parts.append(spot)
        if self.host is not None:
            parts.append(f"host {self.host}")
        if self.rank is not None:
            parts.append(f"rank {self.rank}")
        return ", ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Return the set fields as a JSON-ready mapping."""
        named = {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "host": self.host,
            "rank": self.rank,
        }
        return {key: value for key, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Fix:
    """The one edit that mends a finding: a recipe key and the value it should have."""

    key: str
    value: Any

    def __str__(self) -> str:
        words: dict[Any, str] = {None: "null", True: "true", False: "false"}
        is_word = self.value is None or isinstance(self.value, bool)
        return f"{self.key}={words[self.value] if is_word else self.value}"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found: a stable code, what and why, where, and the edit that mends it."""

    code: str
    severity: Severity
    message: str
    key: str | None = None
    place: Place | None = None
    hint: str | None = None
    fix: Fix | None = None

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Finding:
        """Return the finding that `as_dict` wrote down."""
        place, fix = value["place"], value["fix"]
        return cls(
            code=value["code"],
            severity=Severity(value["severity"]),
            message=value["message"],
            key=value["key"],
            place=Place(**place) if place else None,
            hint=value["hint"],
            fix=Fix(**fix) if fix else None,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "key": self.key,
            "place": self.place.as_dict() if self.place else None,
            "hint": self.hint,
            "fix": {"key": self.fix.key, "value": self.fix.value} if self.fix else None,
        }


@dataclass(eq=False)
class DsforgeError(Exception):
    """A user's mistake or an environment's fault: code, what, where, and how to mend it.

    `exit_code` follows `dsforge.base.exits`; `findings` holds further faults of the same kind.
    """

    code: str
    message: str
    place: Place | None = None
    hint: str | None = None
    exit_code: int = 2
    findings: tuple[Finding, ...] = field(default=())

    def __str__(self) -> str:
        return self.message

    def told(self) -> str:
        """Return the lines that a trainer writes: what, where, and the edit that mends it."""
        where = f" ({self.place})" if self.place and str(self.place) else ""
        lines = [f"error[{self.code}]: {self.message}{where}"]
        lines += [f"  hint: {self.hint}"] if self.hint else []
        return "".join(one_line(printable(line)) + "\n" for line in lines)
