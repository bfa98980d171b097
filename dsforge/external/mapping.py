"""From a recipe's values to a program's options, row by row of the flavour's data file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsforge.catalog.engines.flavours import Flavour, Row
from dsforge.external.expressions import evaluate, names
from dsforge.external.options import Fault, Given, Table, option_table, read, written
from dsforge.external.values import RECIPE_KEYS


@dataclass(frozen=True, slots=True)
class Word:
    """One argument. `base`: what a path is relative to (records/program.py), known where a rank runs."""

    text: str
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a setting, or a path from `base`."""

    value: Any
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """An option with its values, none for a flag."""

    option: str
    values: tuple[Value, ...]


def settings(flavour: Flavour, values: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield what a recipe sets, in the order of the flavour's file."""
    for row in flavour.rows:
        if row.when is None or evaluate(row.when, values):
            yield Setting(row.option, tuple(_values(row, values)))


def keys_of(row: Row) -> tuple[str, ...]:
    """Return the names that a row reads, those of its value first."""
    texts = filter(None, (row.value, row.pairs, row.each, row.weights, row.when))
    found = dict.fromkeys(name for text in texts for name in names(text))
    return tuple(RECIPE_KEYS.get(name, name) for name in found)


def _values(row: Row, values: Mapping[str, Any]) -> Iterator[Value]:
    if row.pairs is not None:
        sets = evaluate(row.pairs, values)
        for weight, prefix in sets:
            if len(sets) > 1:
                yield Value(weight)
            yield Value(prefix, row.base)
    elif row.each is not None:
        yield Value([prefix for _, prefix in evaluate(row.each, values)], row.base)
    elif row.weights is not None:
        yield Value([weight for weight, _ in evaluate(row.weights, values)])
    elif row.value is not None:
        value = evaluate(row.value, values)
        yield Value(row.words.get(str(value), value), row.base)


def _words(setting: Setting, table: Table) -> Iterator[Word]:
    option = table.at(setting.option)
    for one in setting.values:
        yield Word(option.text(one.value), one.base)


def arguments(flavour: Flavour, values: Mapping[str, Any], passed: Sequence[str]) -> list[Word]:
    """Return the whole argument list: what the recipe sets, then what the user passes on.

    Of an option that both set, as equal values or as one that is free, the user's stands.
    """
    table = option_table(flavour.name)
    given, _ = read(passed, table)
    theirs = {one.option.dest for one in given}
    ours = [one for one in settings(flavour, values) if table[one.option].dest not in theirs]
    return [
        *(word for one in ours for word in (Word(one.option), *_words(one, table))),
        *(Word(word) for word in passed),
    ]


def passed_values(passed: Sequence[str], table: Table) -> dict[str, Any]:
    """Return what the user passes on as values `argument.DEST`."""
    given, _ = read(passed, table)
    return {f"argument.{one.option.dest}": _given(one) for one in given}


def _given(one: Given) -> Any:
    if one.option.kind != "value":
        return one.option.kind != "false" and not one.option.name.startswith("--no-")
    return one.values[0] if len(one.values) == 1 else one.values


def contradictions(flavour: Flavour, values: Mapping[str, Any], passed: Sequence[str]) -> Iterator[Fault]:
    """Yield each passed option that says otherwise than the recipe, with the key to change instead."""
    table = option_table(flavour.name)
    given, _ = read(passed, table)
    set_by = {table.at(one.option).dest: one for one in settings(flavour, values)}
    governed = {table.at(row.option).dest: row for row in reversed(flavour.rows) if not row.free}
    free = {table.at(row.option).dest for row in flavour.rows if row.free}
    for one in given:
        name, dest = one.option.name, one.option.dest
        key = flavour.overruled(name)
        if key is not None:
            yield Fault(one.at, f"`{name}` is what `{key}` says in the recipe", f"set `{key}`")
            continue
        row, ours = governed.get(dest), set_by.get(dest)
        if row is None or dest in free:
            continue
        key = next(iter(keys_of(row)), "the flavour")
        if ours is None:
            yield Fault(
                one.at, f"`{name}` contradicts `{key}`, from which it would follow", f"change `{key}`"
            )
        elif not _agree(one, ours, table):
            yield Fault(
                one.at, f"`{_shown(one)}` contradicts `{key}`: {_ours(ours, table)}", f"change `{key}`"
            )


def _agree(one: Given, ours: Setting, table: Table) -> bool:
    if one.option.kind != "value":
        return one.option.name == ours.option
    texts = [word.text for word in _words(ours, table)]
    option = table.at(ours.option)
    return len(texts) == len(one.values) and all(map(option.same, one.values, texts))


def _shown(one: Given) -> str:
    return written(one.option.name, one.values)


def _ours(ours: Setting, table: Table) -> str:
    return f"the recipe gives `{written(ours.option, [word.text for word in _words(ours, table)])}`"


def tree(
    flavour: Flavour, values: Mapping[str, Any], passed: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a program's configuration, and by dotted key the base of each path in it.

    What the recipe sets, then what the user passes on; of a key that both set, as equal values or as one that
    is free, the user's stands.
    """
    table = option_table(flavour.name)
    root: dict[str, Any] = {}
    bases: dict[str, str] = {}
    for one in settings(flavour, values):
        (found,) = one.values
        _put(root, one.option, _typed(found.value, table.at(one.option).type))
        if found.base:
            bases[one.option] = found.base
    for given in read(passed, table)[0]:
        _put(root, given.option.dest, given.option.value(given.values[0]))
    return root, bases


def _put(root: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, last = dotted.split(".")
    node = root
    for section in sections:
        node = node.setdefault(section, {})
    node[last] = value


def _typed(value: Any, kind: str | None) -> Any:
    """Return a value of the class that a configuration's own check compares with."""
    return int(value) if kind == "int" and isinstance(value, float) and value.is_integer() else value
