"""Rewrites a recipe of an older version to the newest, one step of the format at a time, comments kept."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.recipe import migrations
from dsforge.recipe.document import parse
from dsforge.recipe.edit import edit
from dsforge.recipe.version import NEWEST, refuse_version


@dataclass(frozen=True, slots=True)
class Step:
    """From one version to the next. `rewrite` takes and returns the text, and leaves `version` alone."""

    from_version: int
    summary: str
    rewrite: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Migrated:
    """The text in the newest version, and what each step changed."""

    text: str
    from_version: int
    to_version: int
    summaries: tuple[str, ...]


@cache
def registered() -> dict[int, Step]:
    """Return the steps by the version they start from; a gap is a bug."""
    steps: dict[int, Step] = {}
    for module in pkgutil.iter_modules(migrations.__path__):
        step: Step = importlib.import_module(f"{migrations.__name__}.{module.name}").STEP
        assert step.from_version not in steps, f"two steps from version {step.from_version}"
        steps[step.from_version] = step
    assert sorted(steps) == list(range(1, NEWEST)), "a version without a step to the next"
    return steps


def migrate(
    text: str, file: str, steps: Mapping[int, Step] | None = None, newest: int | None = None
) -> Migrated:
    """Return a recipe's text in the newest version.

    DsforgeError DSF006 for a version that is newer than this build or no version at all.
    """
    steps = registered() if steps is None else steps
    newest = NEWEST if newest is None else newest
    document = parse(text, file)
    version: Any = document.data.get("version")
    place = document.place(("version",))
    if not isinstance(version, int) or isinstance(version, bool):
        message = "the recipe does not say which version it has"
        raise DsforgeError("DSF006", message, place, "start it with `version: 1`")
    if version > newest or version < 1:
        raise refuse_version(version, newest, place)
    summaries = []
    for number in range(version, newest):
        text = edit(steps[number].rewrite(text), {"version": number + 1}, file)
        summaries.append(steps[number].summary)
    return Migrated(text, version, newest, tuple(summaries))
