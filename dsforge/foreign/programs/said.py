"""What a program is told, option by option, its own defaults included, and what a recipe makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsforge.base.errors import Place
from dsforge.catalog.engines.flavours import Flavour, Row
from dsforge.external.expressions import evaluate, names
from dsforge.foreign.programs.backwards import constant, follows, is_constant, solved, unknown


@dataclass(frozen=True, slots=True)
class Said:
    """One option's value. `place`: where it is given, None for a default.

    `is_open`: known only where the script runs.
    """

    option: str
    value: Any
    place: Place | None = None
    is_open: bool = False

    @property
    def given(self) -> bool:
        """Tell whether the file says it."""
        return self.place is not None


@dataclass(frozen=True, slots=True)
class Solved:
    """What a recipe's name must be, and the option that says so."""

    value: Any
    said: Said


OTHERWISE: Mapping[str, Any] = {
    "model.position": "learned",
    "model.activation": "gelu",
    "train.precision": "fp32",
    "train.recompute": "none",
    "parallel.zero": 0,
    "monitor.tensorboard": False,
}
"""What a name is where the option that says otherwise is not set."""
_ELSEWHERE = ("plan.", "data.", "cluster.", "launch.", "checkpoint.", "external.")
"""Names whose options are read together, not one by one."""


def solve(flavour: Flavour, said: Mapping[str, Said]) -> dict[str, Solved]:
    """Return what the options say by the recipe's names; `said` has them by the rows' option.

    What is given stands before what follows from a flag, and that before defaults.
    """
    out: dict[str, Solved] = {}
    for found in (_given(flavour, said), _flags(flavour, said), _defaults(flavour, said, out)):
        for name, one in found:
            if not name.startswith(_ELSEWHERE):
                out.setdefault(name, one)
    return out


def _given(flavour: Flavour, said: Mapping[str, Said]) -> Iterator[tuple[str, Solved]]:
    for row in flavour.rows:
        one = said.get(row.option)
        if one is not None and one.given and not one.is_open:
            yield from _by_value(row, one)


def _by_value(row: Row, one: Said) -> Iterator[tuple[str, Solved]]:
    if row.value is None or one.value is None:
        return
    name = unknown(row.value)
    if name is None:
        return
    back = {str(word): key for key, word in row.words.items()}
    value = solved(row.value, back.get(str(one.value), one.value))
    if value is not None:
        yield name, Solved(value, one)


def _flags(flavour: Flavour, said: Mapping[str, Said]) -> Iterator[tuple[str, Solved]]:
    """Yield what follows from options that are set, then from those that are not."""
    rows = [(row.when, is_set, said[row.option]) for row in flavour.rows if row.when is not None
            and (is_set := _is_set(row, said)) is not None]  # fmt: skip
    for when, is_set, one in rows:
        for name, value in follows(when, is_set):
            yield name, Solved(value, one)
    for when, is_set, one in rows:
        if not is_set:
            for name, _ in follows(when, True):
                if name in OTHERWISE:
                    yield name, Solved(OTHERWISE[name], one)


def _is_set(row: Row, said: Mapping[str, Said]) -> bool | None:
    """Tell whether a row's option is set as the row sets it; None for one whose value says more than that."""
    one = said.get(row.option)
    if one is None or row.pairs is not None or row.each is not None or row.weights is not None:
        return None
    if row.value is None:
        return bool(one.value)
    if not is_constant(row.value):
        return None
    return one.given and (row.base is not None or one.value == constant(row.value))


def _defaults(
    flavour: Flavour, said: Mapping[str, Said], so_far: Mapping[str, Solved]
) -> Iterator[tuple[str, Solved]]:
    for row in flavour.rows:
        one = said.get(row.option)
        if one is None or one.given:
            continue
        known = {name: found.value for name, found in so_far.items()}
        if row.when is not None and not (
            all(name in known for name in names(row.when)) and evaluate(row.when, known)
        ):
            continue
        yield from _by_value(row, one)
