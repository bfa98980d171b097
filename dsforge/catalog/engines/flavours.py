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
class Change:
    """Options that change what the recipe says under a name of their own: which key they speak of, and how.

    `why`: completes a sentence that begins with the option. Said as the program's own default they change
    nothing, nor as in `same`: what the program makes of an option that has no default.
    """

    key: str
    why: str
    options: tuple[str, ...]
    same: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Default:
    """The value that an unset key of the recipe takes under this program, and why not the usual one."""

    value: Any
    why: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that tells a program what no option does: its value, an expression, why, and when."""

    value: str
    why: str
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Build:
    """What a program compiles when it starts: by `file`, into `product` (a glob), with which tools."""

    file: str
    product: str
    commands: tuple[str, ...]
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Flavour:
    """One program. `marks`: files that a checkout of it has. `revisions`: what the data was read from.

    `takes`: options, a configuration (in `configuration_option`), or anything. `patterns`: regular
    expressions by event (step, validation, joined) with the records' names as groups. `printed_by`: the rank
    that prints them, first or last; `joined` is told by the first. `stubs`: imports that a CPU has not;
    `removed`: those that what is installed today has on no machine, and that a run does not use.
    `stand_ins`: names by which CUDA is used, and what each does on a CPU (rank/site/). `instead`: options
    that would overrule a recipe's key under another name; `changes`: those that no key says, and that make
    the run another one than the recipe's. `declares`: files of a checkout, as patterns, in which its options
    or keys are declared; `elsewhere`: those that a library adds. `served`:
    keys of the recipe that never reach the program, and who honours them. `variables`: set on every rank, by
    name.
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
    changes: tuple[Change, ...]
    patterns: dict[str, str]
    printed_by: str
    stubs: tuple[str, ...]
    stand_ins: dict[str, str]
    removed: tuple[str, ...]
    variables: dict[str, Variable]
    builds: Build | None
    checkpoint_marks: tuple[str, ...]
    declares: tuple[str, ...] = ()
    elsewhere: frozenset[str] = frozenset()

    def overruled(self, option: str) -> str | None:
        """Return the recipe's key that an option, or a key inside it, would overrule under another name."""
        return next((self.instead[name] for name in around(option) if name in self.instead), None)

    def change(self, option: str) -> Change | None:
        """Return what an option, or a key inside it, makes of the run that the recipe does not say."""
        names = around(option)
        return next((one for one in self.changes if any(name in one.options for name in names)), None)


def around(option: str) -> tuple[str, ...]:
    """Return a dotted key and all that enclose it, from the outside in; an option has no dots."""
    parts = option.split(".")
    return tuple(".".join(parts[: end + 1]) for end in range(len(parts)))


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
        changes=tuple(
            Change(**{**row, "options": tuple(row["options"])}) for row in table.get("changes", ())
        ),
        patterns=program["patterns"],
        printed_by=program["printed_by"],
        stubs=tuple(program["stubs"]),
        stand_ins={name: deed for deed, names in program.get("stand_ins", {}).items() for name in names},
        removed=tuple(program.get("removed", ())),
        variables={name: Variable(**row) for name, row in program.get("variables", {}).items()},
        builds=_build(program.get("builds")),
        checkpoint_marks=tuple(program["checkpoint_marks"]),
        declares=tuple(program.get("declares", ())),
        elsewhere=frozenset(program.get("elsewhere", ())),
    )


def _build(row: dict[str, Any] | None) -> Build | None:
    if row is None:
        return None
    return Build(row["file"], row["product"], tuple(row["commands"]), tuple(row["modules"]))
