"""Gathers an import from options: what is carried, what is asked for, what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.catalog.engines.flavours import Change
from dsforge.foreign.findings import shown
from dsforge.foreign.imports import Carried, Import, Left, Needed
from dsforge.foreign.programs.said import Said, Solved
from dsforge.recipe.model import Recipe

OPEN = "known only where the script runs"


class Carrying:
    """An import in the making. `used`: options whose meaning is dealt with."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.out = Import()
        self.given = given
        self.used: set[str] = set()

    def carry(self, key: str, value: Any, said: Said, source: str = "") -> None:
        """Carry what an option says; of a default only what the recipe would take otherwise."""
        self.used.add(said.option)
        if not said.given and value == _usual(key):
            return
        words = source or (said.option if said.given else f"the default of {said.option}")
        self.out.carried.append(Carried(key, value, words, said.place if not source else None))

    def derive(self, key: str, value: Any, source: str, place: Place | None = None) -> None:
        """Carry what follows from more than one option, or from none."""
        self.out.carried.append(Carried(key, value, source, place))

    def solved(self, key: str, found: Solved | None) -> None:
        """Carry what was solved for; ask for it where only the running script knows."""
        if found is not None:
            self.carry(key, found.value, found.said)

    def need(self, key: str, said: Said | None, why: str) -> None:
        """Ask for a recipe key, unless it is given."""
        head = key.partition(".")[0]
        if key in self.given or (head in self.given and head == "model"):
            return
        if not any(one.key == key for one in self.out.needed):
            self.out.needed.append(Needed(key, why, said.place if said else None))

    def leave(self, said: Said, why: str) -> None:
        """Leave an option behind."""
        self.used.add(said.option)
        value = "" if said.value is True else shown(said.value)
        self.out.left.append(Left(said.option, value, why, said.place))

    def leave_change(self, said: Said, change: Change) -> None:
        """Leave behind what would make the run another one than the recipe's.

        DsforgeError DSF691 where the model would be another and none is given beside the file.
        """
        if change.key == "model" and "model" not in self.given:
            hint = "take it out of the file, or add --model NAME: the model that is to be trained instead"
            raise DsforgeError("DSF691", f"`{said.option}` {change.why}", said.place, hint)
        self.leave(said, f"it {change.why}")


def _usual(key: str) -> Any:
    """Return what a recipe takes where a key is not set."""
    section, _, name = key.partition(".")
    fields = Recipe.model_fields.get(section)
    factory = fields.default_factory if fields is not None else None
    if factory is None:
        return None
    part = factory()  # type: ignore[call-arg]  # the sections' factories take nothing
    return next(
        (
            getattr(part, field)
            for field, info in type(part).model_fields.items()
            if (info.alias or field) == name
        ),
        None,
    )
