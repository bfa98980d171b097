"""A wrong value whose edit is known."""

from __future__ import annotations


class HintedError(ValueError):
    """What is wrong with a value, and the one edit that mends it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
