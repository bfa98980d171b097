"""A YAML file as plain data plus the place of every key; nothing in it is ever executed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.files import check_regular
from dsforge.recipe.guard import MAX_DEPTH, MAX_NODES, load, strict_yaml
from dsforge.recipe.origins import DEFAULT, Origin

KeyPath = tuple[str | int, ...]
_MAX_BYTES = 1 << 20
_MAX_INTEGER_BITS = 1024
"""Far beyond any quantity; longer ones cost time to print and some cannot be printed at all."""


@dataclass(slots=True)
class Document:
    """Plain data and, for each key path, where its key stands and which layer set it."""

    data: dict[str, Any]
    places: dict[KeyPath, Place] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)

    def place(self, path: KeyPath) -> Place:
        """Return the place of the nearest enclosing key that has one."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return Place()

    def origin(self, path: KeyPath) -> Origin:
        """Return which layer set a value; the default when the data does not hold it."""
        node: Any = self.data
        for key in path:
            try:
                node = node[key]
            except (LookupError, TypeError):
                return DEFAULT
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return DEFAULT


def read_text(path: Path, *, may_wait: bool = True) -> str:
    """Return a recipe's text; DsforgeError DSF001 when it cannot be read.

    A pipe is a recipe, too, but only where somebody named it to be read now: it `may_wait` for its writer.
    """
    place = Place(file=str(path))
    try:
        if not may_wait:
            check_regular(path)
        with path.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise DsforgeError(
            "DSF001", "no such file", place, "`dsforge init > recipe.yaml` writes one"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DsforgeError(
            "DSF001", f"cannot be read: {reason}", place, "name a readable recipe file"
        ) from None
    if len(raw) > _MAX_BYTES:
        raise DsforgeError(
            "DSF001", "is larger than 1 MiB", place, "name a recipe file, not a log or data file"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DsforgeError(
            "DSF001", f"is not UTF-8 text (byte {error.start})", place, "save the recipe as UTF-8"
        ) from None


def parse(text: str, file: str) -> Document:
    """Return the document of a YAML text; DsforgeError DSF002 for bad YAML, DSF003 for duplicate keys."""
    data, places = _read(text, file)
    if not isinstance(data, dict):
        hint = "a recipe is a mapping that starts with `version: 1`; see `dsforge init`"
        raise DsforgeError(
            "DSF002", "is not a mapping of keys to values", Place(file=file, line=1, column=1), hint
        )
    return Document(data, places)


def parse_value(text: str, origin: str, path: KeyPath = ()) -> Any:
    """Return the plain value of a YAML scalar or flow collection, as in `key=value` arguments, for a key."""
    return _read(text, origin, path)[0]


def is_argument(path: KeyPath) -> bool:
    """Tell whether a value is an argument of a program, which takes a number as it is written."""
    return path[-3:-1] == ("external", "arguments")


def _read(text: str, file: str, path: KeyPath = ()) -> tuple[Any, dict[KeyPath, Place]]:
    try:
        walker = _Walker(file, text, path)
        return walker.plain(load(text, file), path, 0), walker.places
    except DsforgeError:
        raise
    except MarkedYAMLError as error:
        raise _marked(error, text, file) from None
    except RecursionError:
        raise DsforgeError("DSF002", "nested too deeply", Place(file=file), "flatten the recipe") from None
    except (YAMLError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        first_line = str(error).strip().split("\n", maxsplit=1)[0]
        place = _place_of_character(text, getattr(error, "position", None), file)
        message = f"not valid YAML: {first_line}"
        raise DsforgeError("DSF002", message, place, "correct the YAML syntax") from None


def _place_of_character(text: str, position: int | None, file: str) -> Place:
    if position is None:
        return Place(file=file)
    before = text[:position]
    return Place(file, before.count("\n") + 1, position - before.rfind("\n"))


def _marked(error: MarkedYAMLError, text: str, file: str) -> DsforgeError:
    mark = error.problem_mark or error.context_mark
    hint = "correct the YAML syntax"
    opened = error.context_mark
    if "parsing a flow" in (error.context or "") and opened and mark and opened.line < mark.line:
        # The parser stumbles where the next key begins; what is wrong is the bracket that was left open.
        mark = opened
        hint = "close the bracket that opens here, or set the comma that is missing inside"
    place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
    if type(error).__name__ == "DuplicateKeyError":
        words = (error.problem or "").split('"')
        key = words[1] if len(words) > 1 else "a key"
        return DsforgeError("DSF003", f"key `{key}` stands twice", place, "keep one of the two")
    problem = " ".join(filter(None, [error.context, error.problem]))
    if mark is not None and _BARE_REFERENCE.search("".join(text.splitlines()[mark.line : mark.line + 1])):
        hint = 'inside braces a reference takes quotes: "${NAME:default}"'
    return DsforgeError("DSF002", f"not valid YAML: {problem}", place, hint)


_NUMBER = re.compile(r"[^\s,\]&*]+")
_BARE_REFERENCE = re.compile(r"\{[^'\"]*\$\{")


class _Walker:
    """Turns ruamel's tree into plain data, bounded in size and depth, and notes places."""

    def __init__(self, file: str, text: str, root: KeyPath) -> None:
        self.file = file
        self.lines = text.splitlines()
        self.places: dict[KeyPath, Place] = {(): Place(file, 1, 1), root: Place(file, 1, 1)}
        self.nodes = 0

    def fail(self, message: str, path: KeyPath, hint: str) -> DsforgeError:
        place = next(self.places[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.places)
        return DsforgeError("DSF002", message, place, hint)

    def plain(self, node: Any, path: KeyPath, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise self.fail("is too large once aliases are expanded", path, "write the values out")
        if isinstance(node, CommentedMap):
            return self._mapping(node, path, depth)
        if isinstance(node, CommentedSeq | list):
            out = []
            for index, item in enumerate(node):
                if isinstance(node, CommentedSeq):
                    line, column = node.lc.item(index)
                    self.places[(*path, index)] = Place(self.file, line + 1, column + 1)
                out.append(self.plain(item, (*path, index), depth + 1))
            return out
        return self._scalar(node, path)

    def _mapping(self, node: CommentedMap, path: KeyPath, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key in node:
            if key in (node.lc.data or {}):
                line, column = node.lc.key(key)
                place = Place(self.file, line + 1, column + 1)
            else:
                place = self.places[path]  # a key that came in by a merge (`<<`)
            if not isinstance(key, str):
                raise DsforgeError("DSF002", f"key `{key}` is not text", place, "put quotes around it")
            self.places[(*path, str(key))] = place
            out[str(key)] = self.plain(node[key], (*path, str(key)), depth + 1)
        return out

    def _written(self, node: Any, path: KeyPath) -> str:
        """Return a number's own text, which YAML rewrites (1.10, 0012)."""
        place = self.places[path]
        assert place.line is not None, "a value read has its place"
        word = _NUMBER.match(self.lines[place.line - 1], (place.column or 1) - 1)
        try:
            if word is not None and str(strict_yaml().load(word[0])) == str(node):
                return word[0]
        except YAMLError:
            pass  # an alias, or a number with an anchor: its text stands elsewhere
        raise self.fail(f"the number {node} may be written otherwise", path, "put quotes around the text")

    def _scalar(self, node: Any, path: KeyPath) -> Any:
        if node is None or isinstance(node, bool):
            return node
        if type(node).__name__ == "ScalarBoolean":
            return bool(node)
        if isinstance(node, int | float) and is_argument(path):
            return self._written(node, path)
        if isinstance(node, int) and node.bit_length() > _MAX_INTEGER_BITS:
            raise self.fail("a number has too many digits", path, "write a number of a sensible size")
        for kind in (int, float, str):
            if isinstance(node, kind):
                return kind(node)
        raise self.fail(f"value `{node}` is neither number nor text", path, "put quotes around it")
