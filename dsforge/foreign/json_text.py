"""JSON as people keep it: comments, trailing commas, placeholders, keys that stand twice; with places."""

from __future__ import annotations

import bisect
import json
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dsforge.base.errors import DsforgeError, Place
from dsforge.recipe.document import Document, KeyPath

_MAX_DEPTH = 60
_MAX_VALUES = 50_000
_LONGEST_NUMBER = 400
_MOST_TWICE = 50
_BLANK = re.compile(r"[ \t\r\n\ufeff]+")
_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n\x00-\x08\x0b-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_PLACEHOLDER = re.compile(r"\$\{[^{}\n]+\}|\$[A-Za-z_]\w*|\{\{[^{}\n]*\}\}")
_WORD = re.compile(r"[^\s,:{}\[\]]+")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_PYTHON = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A value that a shell or a template fills in before an engine reads the file."""

    text: str


@dataclass(slots=True)
class JsonText:
    """A JSON text's data with the place of each key, and what a strict reader would refuse in it."""

    document: Document
    twice: list[tuple[KeyPath, Place, Place]] = field(default_factory=list)
    """Key, where it stands first, where it stands again: the last one counts."""
    lenient: list[tuple[str, Place]] = field(default_factory=list)
    placeholders: list[tuple[KeyPath, Place]] = field(default_factory=list)


def read_json(text: str, file: str) -> JsonText:
    """Return a JSON text read leniently; DsforgeError DSF602 with the place of what no reader takes."""
    reader = _Reader(text, file)
    value = reader.value((), 0)
    reader.skip()
    if reader.at < len(text):
        reader.fail("more text after the end of the object", "keep one object a file")
    if not isinstance(value, dict):
        reader.at = 0
        reader.fail("is not an object of keys and values", "a configuration starts with `{`")
    reader.out.document.data = value
    return reader.out


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self.text, self.file, self.at, self.count = text, file, 0, 0
        self.ends = [match.start() for match in re.finditer("\n", text)]
        self.out = JsonText(Document({}, {(): Place(file, 1, 1)}))

    def place(self, at: int) -> Place:
        line = bisect.bisect_left(self.ends, at)
        return Place(self.file, line + 1, at - (self.ends[line - 1] if line else -1))

    def fail(self, problem: str, hint: str) -> NoReturn:
        raise DsforgeError("DSF602", f"not valid JSON: {problem}", self.place(self.at), hint)

    def skip(self) -> None:
        while True:
            if match := _BLANK.match(self.text, self.at):
                self.at = match.end()
            elif match := _COMMENT.match(self.text, self.at):
                self.out.lenient.append(("comment", self.place(self.at)))
                self.at = match.end()
            else:
                return

    def value(self, path: KeyPath, depth: int) -> Any:
        self.skip()
        self.count += 1
        if depth > _MAX_DEPTH or self.count > _MAX_VALUES:
            self.fail("nested too deeply or too large", "name a configuration, not a data file")
        if match := _PLACEHOLDER.match(self.text, self.at):
            self.at = match.end()
            return self.placeholder(match[0], path, match.start())
        opening = self.text[self.at : self.at + 1]
        if opening == "{":
            return self.mapping(path, depth)
        if opening == "[":
            return self.array(path, depth)
        if opening == '"':
            start = self.at
            found = self.string()
            return self.placeholder(found, path, start) if _PLACEHOLDER.fullmatch(found) else found
        return self.scalar()

    def placeholder(self, text: str, path: KeyPath, at: int) -> Placeholder:
        self.out.placeholders.append((path, self.place(at)))
        return Placeholder(text)

    def string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if not match:
            self.fail("text without a closing quote on its line", 'close it with `"`')
        try:
            found = json.loads(match[0], strict=False)
        except ValueError:
            self.fail("an escape in this text is not one of JSON's", r"write `\\` for a backslash")
        self.at = match.end()
        return str(found)

    def scalar(self) -> Any:
        if match := _NUMBER.match(self.text, self.at):
            if len(match[0]) > _LONGEST_NUMBER:
                self.fail("a number has too many digits", "write a number of a sensible size")
            self.at = match.end()
            return json.loads(match[0])
        word = _WORD.match(self.text, self.at)
        if not word:
            ended = self.at >= len(self.text)
            self.fail("the text ends too early" if ended else "a value is missing", "complete the object")
        if word[0] in _WORDS:
            self.at = word.end()
            return _WORDS[word[0]]
        if word[0] in _PYTHON:
            self.fail(f"`{word[0]}` is Python, not JSON", f"write `{_PYTHON[word[0]]}`")
        return self.fail(f"`{word[0][:40]}` is no value", "put text between double quotes")

    def mapping(self, path: KeyPath, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        self.at += 1
        for _ in self.items("}"):
            start = self.at
            if self.text[start : start + 1] != '"':
                word = _WORD.match(self.text, start)
                self.fail(
                    f"key `{word[0][:40] if word else ''}` has no quotes", "put it between double quotes"
                )
            key = self.string()
            where = (*path, key)
            places = self.out.document.places
            if key in out:
                self.out.twice.append((where, places[where], self.place(start)))
                if len(self.out.twice) > _MOST_TWICE:
                    self.fail(f"more than {_MOST_TWICE} keys stand twice", "keep each key once")
                for stale in [known for known in places if known[: len(where)] == where]:
                    del places[stale]
            places[where] = self.place(start)
            self.skip()
            if self.text[self.at : self.at + 1] != ":":
                self.fail(f"no `:` after key `{key[:40]}`", "write `: ` and the value")
            self.at += 1
            out[key] = self.value(where, depth + 1)
        return out

    def array(self, path: KeyPath, depth: int) -> list[Any]:
        out: list[Any] = []
        self.at += 1
        for _ in self.items("]"):
            where = (*path, len(out))
            self.out.document.places[where] = self.place(self.at)
            out.append(self.value(where, depth + 1))
        return out

    def items(self, closing: str) -> Any:
        """Yield before each item of an object or array, and step over commas and the closing bracket."""
        opened = self.at - 1
        comma: int | None = None
        while True:
            self.skip()
            mark = self.text[self.at : self.at + 1]
            if mark == closing:
                if comma is not None:
                    self.out.lenient.append(("trailing comma", self.place(comma)))
                self.at += 1
                return
            if not mark:
                self.at = opened
                self.fail("a bracket is not closed", f"close it with `{closing}`")
            yield
            self.skip()
            comma = self.at if self.text[self.at : self.at + 1] == "," else None
            if comma is not None:
                self.at += 1
            elif self.text[self.at : self.at + 1] not in (closing, ""):
                self.fail("a comma is missing before this", "separate values with `,`")
