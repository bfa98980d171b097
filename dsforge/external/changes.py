"""Options passed on that make the run another one than the recipe's, or that fail in the program itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsforge.catalog.engines.flavours import Change, Flavour
from dsforge.catalog.engines.scripts import counts
from dsforge.external.mapping import settings
from dsforge.external.options import Fault, Given, option_table, read, written


def changes(flavour: Flavour, values: Mapping[str, Any], passed: Sequence[str]) -> Iterator[Fault]:
    """Yield each passed option by which the program would do something else than the recipe says.

    What the recipe itself sets under these values is no change.
    """
    table = option_table(flavour.name)
    ours = {table.at(one.option).dest for one in settings(flavour, values)}
    for one in read(passed, table)[0]:
        name, change = one.option.name, change_by(flavour, one)
        if change is not None and one.option.dest not in ours:
            hint = f"leave `{name}` out: `{change.key}` is what the recipe says of it"
            yield Fault(one.at, f"`{written(name, one.values)}` {change.why}", hint)
        elif name in counts(flavour.name) and any(one.option.value(text) < 1 for text in one.values):
            why = "the parser takes it, and the program fails or trains nothing"
            yield Fault(one.at, f"`{written(name, one.values)}`: {why}", "a number above 0")


def change_by(flavour: Flavour, one: Given) -> Change | None:
    """Return what an option with these values makes of the run that the recipe does not say."""
    change = flavour.change(one.option.name)
    if change is None or one.is_default() or one.values == (change.same.get(one.option.name),):
        return None
    return change
