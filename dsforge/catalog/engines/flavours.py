"""The programs that `trainer: external` starts, each from its data file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from ruamel.yaml import YAML

FLAVOURS = ("megatron-deepspeed", "megatron-lm", "gpt-neox", "script")


@dataclass(frozen=True, slots=True)
class Row:
    """One option, set where `when` holds, to `value` (an expression) or to data sets.

    Data sets are pairs of weight and path: all of them (`pairs`), or the list of their paths (`each`) or
    weights (`weights`). `option` is a key path for a program that reads a configuration file. `words`: what
    the program calls our values. `base`: what a path is relative to. `free`: what the user passes on may
    differ.
    """

    option: str
    value: str | None = None
    pairs: str | None = None
    each: str | None = None
    weights: str | None = None
    when: str | None = None
    words: dict[str, Any] = field(default_factory=dict)
    base: str | None = None
    free: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """What a revision of a program is known to do wrong: when, about which key, why, and what mends it."""

    when: str
    key: str
    why: str
    hint: str


@dataclass(frozen=True, slots=True)
class Default:
    """The value that an unset key of the recipe takes under this program, and why not the usual one."""

    value: Any
    why: str


@dataclass(frozen=True, slots=True)
class Flavour:
    """One program. `marks`: files that a checkout of it has. `revisions`: what the data was read from.

    `takes`: options, a configuration (in `configuration_option`), or anything. `patterns`: regular
    expressions by event (step, validation, joined) with the records' names as groups. `printed_by`: the rank
    that prints them, first or last. `stubs`: imports that a CPU has not. `instead`: options that would
    overrule a recipe's key under another name. `declares`: files of a checkout, as patterns, in which its
    options or keys are declared; `elsewhere`: those that a library adds. `served`: keys of the recipe that
    never reach the program, and who honours them.
    """

    name: str
    entry: str | None
    marks: tuple[str, ...]
    revisions: tuple[str, ...]
    takes: str
    configuration_option: str | None
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    defaults: dict[str, Default]
    served: dict[str, str]
    instead: dict[str, str]
    patterns: dict[str, str]
    printed_by: str
    stubs: tuple[str, ...]
    checkpoint_marks: tuple[str, ...]
    declares: tuple[str, ...] = ()
    elsewhere: frozenset[str] = frozenset()


@cache
def flavour_of(name: str) -> Flavour:
    """Return a flavour by name."""
    assert name in FLAVOURS, name
    file = resources.files("dsforge.catalog.engines") / f"{name}.yaml"
    table: dict[str, Any] = YAML(typ="safe", pure=True).load(file.read_text("utf-8"))
    program = table["program"]
    return Flavour(
        name=name,
        entry=program["entry"],
        marks=tuple(program["marks"]),
        revisions=tuple(program["revisions"]),
        takes=program["takes"],
        configuration_option=program.get("configuration_option"),
        rows=tuple(Row(**row) for row in table["options"]),
        failures=tuple(Failure(**row) for row in table["failures"]),
        defaults={key: Default(**row) for key, row in table["defaults"].items()},
        served=table["served"],
        instead=table["instead"],
        patterns=program["patterns"],
        printed_by=program["printed_by"],
        stubs=tuple(program["stubs"]),
        checkpoint_marks=tuple(program["checkpoint_marks"]),
        declares=tuple(program.get("declares", ())),
        elsewhere=frozenset(program.get("elsewhere", ())),
    )
