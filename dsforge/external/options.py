"""A program's options, as facts of its parser, and argument lists held against them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from dsforge.catalog.engines.deepspeed import known_keys
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.catalog.engines.neox import neox_keys


def _json(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = json.loads(text)
        if type(value) is not kind:
            raise ValueError(f"no {kind.__name__}")
        return value

    return read


def _anything(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


_READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": _json(bool),
    "list": _json(list),
    "dict": _json(dict),
    "any": _anything,
}
_IN_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list in JSON",
    "dict": "a mapping in JSON",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `kind`: it takes values, sets its destination true or false, or is of a --x, --no-x pair.

    `nargs`: None for one value, a number, or `+`, `*`, `?` as argparse has them. `derived`: the program works
    it out, whatever is said of it.
    """

    name: str
    dest: str
    kind: Literal["value", "true", "false", "boolean"]
    default: Any = None
    type: Literal["int", "float", "str", "bool", "list", "dict", "any"] | None = None
    choices: tuple[str, ...] = ()
    nargs: int | str | None = None
    derived: bool = False

    def wanted(self) -> str:
        """Return in words what the option takes."""
        if self.kind != "value":
            return "no value"
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return _IN_WORDS.get(self.type or "str", "a text")

    def value(self, text: str) -> Any:
        """Return what a text means; ValueError where it is none of the option's type."""
        return _READ[self.type or "str"](text)

    def accepts(self, text: str) -> bool:
        """Tell whether the program's parser takes a text as a value."""
        if self.choices and text not in self.choices:
            return False
        try:
            self.value(text)
        except (ValueError, RecursionError):
            return False
        return True

    def same(self, one: str, other: str) -> bool:
        """Tell whether two texts mean one value: 1e-3 is 0.001."""
        read = float if self.type == "int" else self.value
        return bool(read(one) == read(other))

    def text(self, value: Any) -> str:
        """Return a value as the program reads it: 500000.0 of a whole number is 500000."""
        if isinstance(value, str):
            return value
        if self.type == "int" and isinstance(value, float) and value.is_integer():
            return str(int(value))
        return json.dumps(value) if self.type in ("bool", "list", "dict", "any") else repr(value)


@dataclass(frozen=True, slots=True)
class Given:
    """An option as it stands in an argument list, from the word `at` on."""

    at: int
    option: Option
    values: tuple[str, ...]

    def is_default(self) -> bool:
        """Tell whether it says what the program does anyway."""
        option = self.option
        if option.kind != "value":
            is_on = option.kind == "true" or (
                option.kind == "boolean" and not option.name.startswith("--no-")
            )
            return is_on is option.default
        meant = [option.value(text) for text in self.values]
        usual = [option.default] if option.nargs in (None, "?") else option.default
        return bool(meant == usual)


@dataclass(frozen=True, slots=True)
class Fault:
    """What the program's parser would refuse, at the word `at`, and how to mend it."""

    at: int
    message: str
    hint: str


class Table(dict[str, Option]):
    """Options by name. `assigns`: they are keys of a configuration, and each word is KEY=VALUE."""

    assigns: bool = False

    def find(self, name: str) -> Option | None:
        """Return an option by name; with dots a key inside a mapping that is handed on to DeepSpeed."""
        if not all(name.split(".")):
            return None
        head, dot, _ = name.partition(".")
        outer = self.get(head)
        if not dot or not self.assigns or outer is None or outer.type != "dict":
            return self.get(name)
        *sections, last = name.split(".")
        section = known_keys().section(sections)
        if section is not None and last in section.keys:
            key = section.keys[last]
            kind = "dict" if key.section is not None else {"text": "str"}.get(key.kind, key.kind)
            return Option(name, name, "value", type=kind)  # type: ignore[arg-type]  # one of these kinds
        is_refused = section is not None and section.checked
        return None if is_refused else Option(name, name, "value", type="any")

    def at(self, name: str) -> Option:
        """Return an option that there is."""
        found = self.find(name)
        assert found is not None, name
        return found


@cache
def option_table(flavour: str) -> Table:
    """Return a flavour's options by name."""
    if flavour_of(flavour).takes == "configuration":
        table = Table(_of_configuration())
        table.assigns = True
        return table
    file = resources.files("dsforge.catalog.engines") / "options" / f"{flavour}.json"
    rows: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8"))
    return Table(
        (name, Option(name=name, **{**row, "choices": tuple(row.get("choices", ()))}))
        for name, row in rows.items()
    )


def _of_configuration() -> Iterator[tuple[str, Option]]:
    for name, key in neox_keys().items():
        if not key.is_dropped and key.type != "null":
            yield (
                name,
                Option(
                    name,
                    name,
                    "value",
                    default=key.default,
                    type=key.type,
                    choices=key.choices,
                    derived=key.derived,
                ),
            )


_MOST_SUGGESTED = 50
"""Options that are compared with all others, which takes milliseconds each."""


def read(words: Sequence[str], table: Table) -> tuple[list[Given], list[Fault]]:
    """Return the options of an argument list and its faults; no program abbreviates options."""
    given: list[Given] = []
    faults: list[Fault] = []
    for at, name, values in _assigned(words) if table.assigns else _grouped(words, table):
        option = table.find(name)
        if option is None:
            faults.append(_unknown(at, words[at], table, suggest=len(faults) < _MOST_SUGGESTED))
            continue
        wrong = list(_wrong(at, option, values))
        faults += wrong
        if not wrong:
            one = Given(at, option, values)
            given += _leaves(one, table) if table.assigns else [one]
    return given, faults + list(_repeated(given))


def _assigned(words: Sequence[str]) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield (index, key, value) of KEY=VALUE; a word without the sign has no value."""
    for at, word in enumerate(words):
        name, equals, text = word.partition("=")
        yield at, name, (text,) if equals else ()


def _grouped(words: Sequence[str], table: Table) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield (index, name, values) as argparse groups words."""
    at = 0
    while at < len(words):
        name, equals, inline = words[at].partition("=")
        end = at + 1
        while end < len(words) and not _is_option(words[end], table):
            end += 1
        rest = tuple(words[at + 1 : end])
        yield at, name, (inline, *rest) if equals else rest
        at = end


def _leaves(given: Given, table: Table) -> Iterator[Given]:
    """Yield each value inside a mapping as one of its own key, as a row of the flavour would set it."""
    inside = given.option.value(given.values[0]) if given.option.type in ("dict", "any") else None
    if not isinstance(inside, dict) or not inside:
        yield given
        return
    for key, value in inside.items():
        name = f"{given.option.name}.{key}"
        option = table.find(name) or Option(name, name, "value", type="any")
        yield from _leaves(Given(given.at, option, (option.text(value),)), table)


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


def _unknown(at: int, word: str, table: Table, *, suggest: bool) -> Fault:
    name = word.partition("=")[0]
    if table.assigns and "=" not in word:
        return Fault(at, f"`{word}` sets no key", "the program reads a configuration: write KEY=VALUE")
    if not table.assigns and not word.startswith("-"):
        return Fault(at, f"`{word}` belongs to no option", "the program takes options alone: --name value")
    kind, index = ("key", "list of keys") if table.assigns else ("option", "--help")
    known = [*table, *_inner(name)] if table.assigns else list(table)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6) if suggest else []
    hint = f"did you mean `{near[0]}`?" if near else f"see the program's own {index}"
    return Fault(at, f"the program has no {kind} `{name}`", hint)


def written(name: str, values: Sequence[str]) -> str:
    """Return an option with its values as a command line or, of a key, an assignment has them."""
    return " ".join((name, *values)) if name.startswith("-") else f"{name}={' '.join(values)}"


def _inner(name: str) -> Iterator[str]:
    """Yield DeepSpeed's keys beside one that it does not have."""
    *sections, _ = name.split(".")
    section = known_keys().section(sections) if sections else None
    yield from (".".join([*sections, key]) for key in (section.keys if section is not None else ()))


def _wrong(at: int, option: Option, values: tuple[str, ...]) -> Iterator[Fault]:
    name, count = option.name, len(values)
    if option.derived:
        yield Fault(at, f"`{name}` is what the program works out itself", "remove it")
        return
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
            yield Fault(at, f"`{written(name, [value])}` is not legal", f"`{name}` takes {option.wanted()}")


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
