"""The keys of a GPT-NeoX configuration, from its data file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

NeoxType = Literal["int", "float", "bool", "str", "list", "dict", "null"]


@dataclass(frozen=True, slots=True)
class NeoxKey:
    """One top-level key. `section`: the program's class of settings that has it, `dropped` where none has.

    `default`: None where the program has none. `derived`: the program works it out and overwrites what a
    file says. `now`: what says the same today of a key that was dropped.
    """

    type: NeoxType
    section: str
    default: Any = None
    choices: tuple[str, ...] = ()
    derived: bool = False
    now: str | None = None

    @property
    def is_dropped(self) -> bool:
        """Tell whether only earlier revisions have the key."""
        return self.section == "dropped"

    def wanted(self) -> str:
        """Return in words what the key takes."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
        return {**words, "list": "a list", "dict": "a mapping", "null": "nothing"}[self.type]

    def takes(self, value: Any) -> bool:
        """Tell whether the program's check of types passes a value; null passes everywhere."""
        kinds = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "dict": dict}
        if value is None:
            return True
        if self.choices:
            return isinstance(value, str) and value.lower() in {one.lower() for one in self.choices}
        # The program compares classes: true is no number, but a whole number is one with a fraction.
        return type(value) is kinds.get(self.type) or (self.type == "float" and type(value) is int)


def attention_kinds(configuration: list[Any], layers: int) -> list[str] | None:
    """Return the attention of each layer, as the program writes its list out.

    None for a list that it cannot read. Kinds alone stand for a layer each; otherwise each item is kinds and
    how often they come, or `all`.
    """
    if all(isinstance(item, str) for item in configuration):
        return list(configuration)
    kinds: list[str] = []
    for item in configuration:
        match item:
            case [[*names], count] if names and all(isinstance(name, str) for name in names):
                if count == "all" and layers % len(names) == 0:
                    return names * (layers // len(names))
                if not isinstance(count, int):
                    return None
                kinds += names * min(count, layers + 1)
            case _:
                return None
    return kinds


@cache
def neox_keys() -> dict[str, NeoxKey]:
    """Return every top-level key by name, dropped ones included."""
    file = resources.files("dsforge.catalog.engines") / "options" / "gpt-neox.json"
    table: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8"))
    return {name: NeoxKey(**{**row, "choices": tuple(row.get("choices", ()))}) for name, row in table.items()}
