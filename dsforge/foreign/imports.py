"""What an import carries into a recipe and what it leaves behind: shared by every foreign format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dsforge.base.errors import Place
from dsforge.base.text import SECRET_NAME
from dsforge.foreign.findings import Examined, is_open, shown
from dsforge.recipe.document import Document


@dataclass(frozen=True, slots=True)
class Carried:
    """One recipe key and its value; `source` is the foreign key, or says where else the value comes from."""

    key: str
    value: Any
    source: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """One foreign key that no recipe holds, and why."""

    key: str
    value: str
    why: str
    place: Place | None = None

    def __str__(self) -> str:
        return f"{self.key}: {self.value} - {self.why}" if self.value else f"{self.key} - {self.why}"


@dataclass(frozen=True, slots=True)
class Needed:
    """A recipe key that must be given beside the file: nothing may stand in for it."""

    key: str
    why: str
    place: Place | None = None


@dataclass(slots=True)
class Import:
    """Everything that a foreign file says, sorted: each of its keys is in one of the lists."""

    carried: list[Carried] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    needed: list[Needed] = field(default_factory=list)

    def value(self, key: str) -> Any:
        """Return what is carried for a recipe key, or None."""
        return next((one.value for one in self.carried if one.key == key), None)


class Taking:
    """Reads a foreign document key by key, so that what nobody took is known at the end."""

    def __init__(self, document: Document, given: Mapping[str, Any]) -> None:
        self.seen = Examined(document)
        self.out = Import()
        self.given = given
        """Recipe keys with their values that are given beside the file: they need not be asked for."""
        self._taken: set[str] = set()

    def take(self, dotted: str, default: Any = None) -> Any:
        """Return a value and count its key as dealt with."""
        self._taken.add(dotted)
        return self.seen.get(dotted, default)

    def carry(self, key: str, value: Any, source: str) -> None:
        """Carry a value into the recipe; `source` is a key of the file, or words."""
        place = self.seen.document.place(tuple(source.split("."))) if self.seen.has(source) else None
        self.out.carried.append(Carried(key, value, source, place))

    def leave(self, dotted: str, why: str) -> None:
        """Leave a key of the file, or something that it implies, behind."""
        self._taken.add(dotted)
        has = self.seen.has(dotted)
        place = self.seen.document.place(tuple(dotted.split("."))) if has else None
        secret = SECRET_NAME.search(dotted.rpartition(".")[2])
        value = ("..." if secret else shown(self.seen.get(dotted))) if has else ""
        self.out.left.append(Left(dotted, value, why, place))

    def need(self, key: str, dotted: str, why: str) -> None:
        """Ask for a recipe key that the file leaves open, unless it is given."""
        self._taken.add(dotted)
        if key not in self.given and not any(one.key == key for one in self.out.needed):
            place = self.seen.document.place(tuple(dotted.split(".")))
            self.out.needed.append(Needed(key, why, place))

    def plain(self, key: str, dotted: str) -> None:
        """Carry a value as it stands, if there is one; one that is still open is asked for."""
        value = self.take(dotted)
        if is_open(value):
            self.need(key, dotted, f"`{dotted}` is {shown(value)} in the file")
        elif value is not None:
            self.carry(key, value, dotted)

    def finish(self, reasons: Mapping[str, str], otherwise: str) -> Import:
        """Leave every key that nobody took, with the reason of its nearest section, and return the import."""
        for dotted in list(self._rest(self.seen.document.data, "")):
            parts = dotted.split(".")
            heads = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
            why = next((reasons[head] for head in heads if head in reasons), otherwise)
            self.leave(dotted, why)
        return self.out

    def _rest(self, values: Mapping[str, Any], at: str) -> Iterator[str]:
        for key, value in values.items():
            dotted = at + key
            if dotted in self._taken:
                continue
            if isinstance(value, dict) and value:
                yield from self._rest(value, dotted + ".")
            else:
                yield dotted
