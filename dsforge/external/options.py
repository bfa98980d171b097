"""A program's options, as facts of its parser, and argument lists held against them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `kind`: it takes values, sets its destination true or false, or is of a --x, --no-x pair.

    `nargs`: None for one value, a number, or `+`, `*`, `?` as argparse has them.
    """

    name: str
    dest: str
    kind: Literal["value", "true", "false", "boolean"]
    default: Any = None
    type: Literal["int", "float", "str"] | None = None
    choices: tuple[str, ...] = ()
    nargs: int | str | None = None

    def wanted(self) -> str:
        """Return in words what the option takes."""
        if self.kind != "value":
            return "no value"
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return {"int": "a whole number", "float": "a number"}.get(self.type or "str", "a text")

    def accepts(self, text: str) -> bool:
        """Tell whether the program's parser takes a text as a value."""
        if self.choices and text not in self.choices:
            return False
        try:
            {"int": int, "float": float}.get(self.type or "str", str)(text)
        except ValueError:
            return False
        return True

    def same(self, one: str, other: str) -> bool:
        """Tell whether two texts mean one value: 1e-3 is 0.001."""
        if self.type in ("int", "float"):
            return float(one) == float(other)
        return one == other


@dataclass(frozen=True, slots=True)
class Given:
    """An option as it stands in an argument list, from the word `at` on."""

    at: int
    option: Option
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """What the program's parser would refuse, at the word `at`, and how to mend it."""

    at: int
    message: str
    hint: str


Table = dict[str, Option]


@cache
def option_table(flavour: str) -> Table:
    """Return a flavour's options by name."""
    file = resources.files("dsforge.catalog.engines") / "options" / f"{flavour}.json"
    rows: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8"))
    return {
        name: Option(name=name, **{**row, "choices": tuple(row.get("choices", ()))})
        for name, row in rows.items()
    }


def read(words: Sequence[str], table: Table) -> tuple[list[Given], list[Fault]]:
    """Return the options of an argument list and its faults; neither program abbreviates options."""
    given, faults, at = [], [], 0
    while at < len(words):
        name, equals, inline = words[at].partition("=")
        option = table.get(name)
        end = at + 1
        while end < len(words) and not _is_option(words[end], table):
            end += 1
        if option is None:
            faults.append(_unknown(at, words[at], table))
        else:
            values = (inline, *words[at + 1 : end]) if equals else tuple(words[at + 1 : end])
            wrong = list(_wrong(at, option, values))
            faults += wrong
            if not wrong:
                given.append(Given(at, option, values))
        at = end
    return given, faults + list(_repeated(given))


def _is_option(word: str, table: Table) -> bool:
    if not word.startswith("-") or word == "-":
        return False
    if word.partition("=")[0] in table:
        return True
    try:
        float(word)
    except ValueError:
        return True
    return False


def _unknown(at: int, word: str, table: Table) -> Fault:
    name = word.partition("=")[0]
    if not word.startswith("-"):
        return Fault(at, f"`{word}` belongs to no option", "the program takes options alone: --name value")
    near = difflib.get_close_matches(name, table, n=1, cutoff=0.6)
    hint = f"did you mean `{near[0]}`?" if near else "see the program's own --help"
    return Fault(at, f"the program has no option `{name}`", hint)


def _wrong(at: int, option: Option, values: tuple[str, ...]) -> Iterator[Fault]:
    name, count = option.name, len(values)
    if option.kind != "value":
        if values:
            yield Fault(at, f"`{name}` takes no value, here it has `{values[0]}`", f"write `{name}` alone")
        return
    least, most = _counts(option)
    if count < least or (most is not None and count > most):
        need = f"{least}" if least == most else f"at least {least}" if most is None else f"at most {most}"
        hint = f"`{name}` takes {option.wanted()}"
        yield Fault(at, f"`{name}` has {count} values, it takes {need}", hint)
        return
    for value in values:
        if not option.accepts(value):
            yield Fault(at, f"`{name} {value}` is not legal", f"`{name}` takes {option.wanted()}")


def _counts(option: Option) -> tuple[int, int | None]:
    match option.nargs:
        case None:
            return 1, 1
        case int():
            return option.nargs, option.nargs
        case "?":
            return 0, 1
        case nargs:
            return (1 if nargs == "+" else 0), None


def _repeated(given: list[Given]) -> Iterator[Fault]:
    first: dict[str, Given] = {}
    for one in given:
        before = first.setdefault(one.option.dest, one)
        if before is not one:
            message = f"`{one.option.name}` repeats `{before.option.name}`: the program would keep the last"
            yield Fault(one.at, message, "keep one of the two")
