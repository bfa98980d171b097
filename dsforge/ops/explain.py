"""Where a recipe's values came from, and of those that the planner chose what else there was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dsforge.base.errors import DsforgeError
from dsforge.plan.ranking import Judge, Verdict
from dsforge.plan.resolve import make_plan
from dsforge.plan.search.best import Objective
from dsforge.plan.search.candidate import KEYS
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.model import Recipe
from dsforge.recipe.origins import describe
from dsforge.recipe.resolved import leaves, resolved_data
from dsforge.recipe.settled import left_open
from dsforge.recipe.vocabulary import nearest

_NAMES = {name: key for key, name in KEYS.items()}


@dataclass(frozen=True, slots=True)
class Explained:
    """A key's value, what set it, and where the planner chose it, why and against which others."""

    key: str
    value: Any
    origin: str
    why: str | None = None
    others: tuple[tuple[Any, Verdict], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        others = [{"value": value, **verdict.as_dict()} for value, verdict in self.others]
        return {
            "key": self.key,
            "value": self.value,
            "origin": self.origin,
            "why": self.why,
            "others": others,
        }


def explained(loaded: LoadedRecipe, keys: Sequence[str], objective: Objective) -> list[Explained]:
    """Return keys explained, of a section all of them; DsforgeError DSF778 for one that there is not."""
    if not keys:
        hint = "a key, such as `parallel.tp`, or `--layout tp=8,pp=4`"
        raise DsforgeError("DSF778", "nothing to explain is named", None, hint)
    written = dict(leaves(resolved_data(loaded.recipe)))
    plan = make_plan(loaded, refuse=False, objective=objective)
    decided = {one.key: one for one in plan.decisions}
    known = {**written, **{key: one.value for key, one in decided.items()}}
    wanted = [name for key in keys for name in _under(key, known)]
    # Of a single key; for a whole section that would be the same search over and over.
    chosen = {key for key in keys if written.get(key) == "auto" and key in KEYS}
    searched = chosen and left_open(loaded.recipe) and plan.accelerator != "cpu"
    judge = Judge(loaded, objective) if searched else None
    return [
        Explained(
            key=key,
            value=known[key],
            origin=describe(loaded.origin(key), loaded.place(key)),
            why=decided[key].why if key in decided else None,
            others=tuple(judge.others(key)) if judge is not None and key in chosen else (),
        )
        for key in wanted
    ]


def _under(key: str, known: dict[str, Any]) -> Iterator[str]:
    """Yield a key, or the keys of a section."""
    inside = [name for name in known if name == key or name.startswith(f"{key}.")]
    if not inside:
        near = nearest(tuple(key.split(".")))
        hint = f"did you mean `{near}`?" if near else "`dsforge config show RECIPE` lists the keys"
        raise DsforgeError("DSF778", f"there is no key `{key}`", None, hint)
    yield from inside


def layout_of(text: str) -> dict[str, Any]:
    """Return a layout `tp=8,pp=4` by the recipe's keys; DsforgeError DSF778 when it is none."""
    wanted: dict[str, Any] = {}
    for word in text.split(","):
        name, equals, value = word.strip().partition("=")
        key = name if name in KEYS else _NAMES.get(name)
        if key is None or not equals:
            names = ", ".join(_NAMES)
            raise DsforgeError(
                "DSF778", f"`{word.strip()}` says nothing of a layout", None, f"NAME=VALUE; names: {names}"
            )
        if key in wanted:
            raise DsforgeError(
                "DSF778", f"{key} has two values in the layout", None, "one value of each name"
            )
        wanted[key] = _checked(key, value)
    return wanted


def _checked(key: str, text: str) -> Any:
    """Return a value as a recipe takes it."""
    section, field = key.split(".")
    part = Recipe.model_fields[section].annotation
    assert part is not None
    if text == "auto":
        hint = "a value; of names that are left out the recipe's value stays, or the search's choice"
        raise DsforgeError("DSF778", f"`auto` leaves open what {key} of the layout is", None, hint)
    number = text.removeprefix("-").isdecimal()
    value: Any = {"true": True, "false": False}.get(text, int(text) if number else text)
    try:
        return TypeAdapter(part.model_fields[field].rebuild_annotation()).validate_python(value)
    except ValidationError as fault:
        message = fault.errors()[0]["msg"]
        raise DsforgeError("DSF778", f"`{text}` is no value of {key}", None, message) from None
