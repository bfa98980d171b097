"""The one place where text is made safe for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def quote(text: str) -> str:
    """Return a text as one word for a POSIX shell; a NUL byte raises ValueError."""
    if "\0" in text:
        raise ValueError("a NUL byte cannot be passed to a program")
    return shlex.quote(text)


def join(words: Iterable[str]) -> str:
    """Return an argument list as one line for a POSIX shell."""
    return " ".join(quote(word) for word in words)
