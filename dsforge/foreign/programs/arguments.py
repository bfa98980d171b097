"""A Megatron command line as what its parser makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from dsforge.base.errors import Place
from dsforge.external.options import Fault, Given, Option, Table, option_table, read
from dsforge.foreign.bash.launch import Launch
from dsforge.foreign.bash.text import Lines, Text
from dsforge.foreign.programs.said import Said

MEGATRON = ("megatron-deepspeed", "megatron-lm")


@dataclass(slots=True)
class Arguments:
    """What is given, in order; its faults; words that only the running script knows."""

    flavour: str
    table: Table
    words: list[Text]
    given: list[Given]
    faults: list[tuple[Fault, Place]]
    unknown: list[tuple[Fault, Place]]
    loose: list[Text] = field(default_factory=list)
    said: dict[str, Said] = field(default_factory=dict)
    """By destination, defaults included; the last of an option that stands twice."""
    lines: Lines = field(default_factory=lambda: Lines("", ""))

    def by_option(self) -> dict[str, Said]:
        """Return what is said by each option's name."""
        return {name: _as_flag(option, self.said[option.dest]) for name, option in self.table.items()}

    def value(self, dest: str) -> Any:
        """Return the value of a destination, None for one that the program does not have."""
        return self.said[dest].value if dest in self.said else None

    def place(self, at: int) -> Place:
        """Return where a word stands."""
        return self.lines.place(self.words[at].at)


def _as_flag(option: Option, said: Said) -> Said:
    """Return whether an option that switches off is set, in place of what it switches off."""
    is_off = option.kind == "false" or (option.kind == "boolean" and option.name.startswith("--no-"))
    return replace(said, value=not said.value) if is_off else said


def flavour_of_launch(launch: Launch) -> str:
    """Return which program a command line is for: Megatron-DeepSpeed is the one that takes --deepspeed."""
    words = {str(word) for word in launch.arguments}
    return "megatron-deepspeed" if words & {"--deepspeed", "--deepspeed_config"} else "megatron-lm"


def read_arguments(launch: Launch, flavour: str, lines: Lines) -> Arguments:
    """Return the arguments of a launch as the flavour's parser takes them."""
    table = option_table(flavour)
    words, stand_ins, opened, loose = _sorted(launch.arguments, table)
    given, faults = read(stand_ins, table)
    at_fault = [(fault, lines.place(words[fault.at].at)) for fault in faults]
    unknown = [one for one in at_fault if "no option" in one[0].message]
    out = Arguments(
        flavour,
        table,
        words,
        given,
        [one for one in at_fault if one not in unknown],
        unknown,
        loose,
        lines=lines,
    )
    for option in table.values():
        out.said.setdefault(option.dest, Said(option.name, default_of(option)))
    for one in given:
        is_open = any(at in opened for at in range(one.at, one.at + 1 + len(one.values)))
        place = lines.place(words[one.at].at)
        out.said[one.option.dest] = Said(one.option.name, as_value(one), place, is_open)
    return out


def _sorted(found: Sequence[Text], table: Table) -> tuple[list[Text], list[str], set[int], list[Text]]:
    """Return the words, the same with a legal one for each open one, which those are, and loose words.

    A loose word is open and no option's value: it may be any number of options.
    """
    words: list[Text] = []
    out: list[str] = []
    opened: set[int] = set()
    loose: list[Text] = []
    option: Option | None = None
    room = 0.0
    for word in found:
        text = str(word)
        name = text.partition("=")[0]
        if name in table:
            option = table[name]
            room = 0 if option.kind != "value" or "=" in text else _room(option)
        elif word.is_open and room <= 0:
            loose.append(word)
            continue
        else:
            room -= 1
        if word.is_open and name not in table:
            opened.add(len(words))
            if option is not None and not option.accepts(text):
                text = option.choices[0] if option.choices else "0"
        words.append(word)
        out.append(text)
    return words, out, opened, loose


def _room(option: Option) -> float:
    return option.nargs if isinstance(option.nargs, int) else 1 if option.nargs in (None, "?") else inf


def default_of(option: Option) -> Any:
    """Return what a destination is where nothing is given."""
    if option.type == "int" and isinstance(option.default, float):
        return int(option.default)
    return option.default


def as_value(one: Given) -> Any:
    """Return what a parser makes of an option."""
    option = one.option
    if option.kind == "boolean":
        return not option.name.startswith("--no-")
    if option.kind != "value":
        return option.kind == "true"
    convert = {"int": int, "float": float}.get(option.type or "str", str)
    values = [convert(value) for value in one.values]
    return values if option.nargs not in (None, "?") else (values or [None])[0]
