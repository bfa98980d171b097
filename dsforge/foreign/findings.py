"""A configuration under examination: its values by dotted key, and the findings about them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from dsforge.base.errors import Finding, Fix, Severity
from dsforge.foreign.json_text import Placeholder
from dsforge.recipe.document import Document, KeyPath

MISSING = object()
_MOST = 50


class Examined:
    """A document whose findings are gathered with their places."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.findings: list[Finding] = []

    def get(self, dotted: str, default: Any = None) -> Any:
        """Return the value of a dotted key, or the default where any part of it is missing."""
        node: Any = self.document.data
        for key in dotted.split("."):
            if not isinstance(node, dict) or key not in node:
                return default
            node = node[key]
        return node

    def has(self, dotted: str) -> bool:
        """Tell whether a dotted key stands in the file."""
        return self.get(dotted, MISSING) is not MISSING

    def say(
        self,
        code: str,
        severity: Severity,
        message: str,
        key: str | KeyPath,
        hint: str,
        *,
        value: Any = MISSING,
    ) -> None:
        """Add a finding about a key; `value` is what the key should have, where one edit mends it."""
        path: KeyPath = tuple(key.split(".")) if isinstance(key, str) else key
        dotted = ".".join(map(str, path))
        fix = None if value is MISSING else Fix(dotted, value)
        self.findings.append(Finding(code, severity, message, dotted, self.document.place(path), hint, fix))

    def error(self, code: str, message: str, key: str | KeyPath, hint: str, *, value: Any = MISSING) -> None:
        """Add an error."""
        self.say(code, Severity.ERROR, message, key, hint, value=value)

    def warn(self, code: str, message: str, key: str | KeyPath, hint: str, *, value: Any = MISSING) -> None:
        """Add a warning."""
        self.say(code, Severity.WARNING, message, key, hint, value=value)


def first_of(findings: Sequence[Finding]) -> list[Finding]:
    """Return as many findings as anybody reads, and one that counts the rest."""
    shown_now, rest = list(findings[:_MOST]), findings[_MOST:]
    if rest:
        weight = min((one.severity for one in rest), key=list(Severity).index)
        message = f"{len(rest)} further findings are not shown"
        shown_now.append(Finding("DSF606", weight, message, None, rest[0].place, "mend the first ones"))
    return shown_now


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """Return the known word that a wrong one most likely meant."""
    words = {word.lower(): word for word in known}
    close = difflib.get_close_matches(wrong.lower().replace("-", "_"), words, n=1, cutoff=0.6)
    return words[close[0]] if close else None


def is_open(value: Any) -> bool:
    """Tell whether a value is still to be filled in, by a template or a program."""
    return isinstance(value, Placeholder) or value == "auto"


def is_number(value: Any) -> bool:
    """Tell whether a value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any, least: int = 1) -> TypeGuard[int]:
    """Tell whether a value is a whole number of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def shown(value: Any) -> str:
    """Return a value as JSON has it, short."""
    if isinstance(value, Placeholder):
        return value.text
    words = {True: "true", False: "false", None: "null"}
    if value is None or isinstance(value, bool):
        return words[value]
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
