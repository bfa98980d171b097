"""Text of a script after expansion: every character knows where in the script it was written."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dsforge.base.errors import Place

MAX_CHARACTERS = 100_000
"""Longest text that an expansion may come to: a few lines can double one again and again."""


class Char(NamedTuple):
    """One character; `at`: its offset in the script. `quoted`: no word ends at it. `open`: not known yet."""

    char: str
    at: int
    quoted: bool = False
    open: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A run of characters."""

    chars: tuple[Char, ...] = ()

    def __str__(self) -> str:
        return "".join(one.char for one in self.chars)

    def __add__(self, other: Text) -> Text:
        return Text(self.chars + other.chars)

    @property
    def at(self) -> int | None:
        """Return where the text begins in the script, None for an empty one."""
        return self.chars[0].at if self.chars else None

    @property
    def is_open(self) -> bool:
        """Tell whether a part of the text is known only where the script runs."""
        return any(one.open for one in self.chars)

    def quoted(self, quoted: bool) -> Text:
        """Return the text as it stands inside or outside of quotes."""
        return Text(tuple(one._replace(quoted=quoted or one.open) for one in self.chars))

    def words(self) -> Iterator[Text]:
        """Yield the words that unquoted blanks separate."""
        word: list[Char] = []
        for one in self.chars:
            if not one.quoted and one.char in " \t\n":
                if word:
                    yield Text(tuple(word))
                word = []
            else:
                word.append(one)
        if word:
            yield Text(tuple(word))

    def for_json(self) -> Text:
        """Return the text with each open part as one placeholder `${...}`."""
        out: list[Char] = []
        for at, one in enumerate(self.chars):
            before = at > 0 and self.chars[at - 1].open
            after = at + 1 < len(self.chars) and self.chars[at + 1].open
            if not one.open:
                out.append(one)
                continue
            if not before:
                out += (Char("$", one.at), Char("{", one.at))
            if one.char not in '${}()\n"\\':
                out.append(one)
            if not after:
                out.append(Char("}", one.at))
        return Text(tuple(out))


def literal(text: str, at: int, *, quoted: bool = False, unknown: bool = False) -> Text:
    """Return text that is written at an offset of the script as it stands."""
    return Text(tuple(Char(char, at + index, quoted, unknown) for index, char in enumerate(text)))


def made(text: str, at: int) -> Text:
    """Return text that was computed from what is written at an offset."""
    return Text(tuple(Char(char, at) for char in text))


def joined(texts: Iterable[Text]) -> Text:
    """Return texts with a blank between each two."""
    out: list[Char] = []
    for text in texts:
        if out:
            out.append(Char(" ", out[-1].at))
        out += text.chars
    return Text(tuple(out))


class Lines:
    """Offsets of a script as places in its file."""

    def __init__(self, script: str, file: str) -> None:
        self.file = file
        self._ends = [match.start() for match in re.finditer("\n", script)]

    def place(self, at: int | None) -> Place:
        """Return the place of an offset, of the file where there is none."""
        if at is None:
            return Place(self.file)
        line = bisect.bisect_left(self._ends, at)
        return Place(self.file, line + 1, at - (self._ends[line - 1] if line else -1))
