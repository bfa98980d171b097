"""A recipe in which nothing is `auto` that shapes the layout: what rules and plans read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, cast

from dsforge.recipe.model import Recipe
from dsforge.recipe.section import Section
from dsforge.recipe.sections import OffloadSection, ParallelSection, TrainSection


class SettledParallel(ParallelSection):
    """Degrees that are numbers; DP and the ZeRO stage follow from them."""

    tp: int
    pp: int
    vp: int
    cp: int
    ep: int
    schedule: Literal["gpipe", "1f1b", "interleaved"]
    sequence_parallel: bool


class SettledOffload(OffloadSection):
    """Places that are named."""

    optimizer: Literal["none", "cpu", "nvme"]
    parameters: Literal["none", "cpu", "nvme"]


class SettledTrain(TrainSection):
    """A recomputation that is named."""

    recompute: Literal["none", "selective", "full"]


class SettledRecipe(Recipe):
    """A recipe whose layout is fixed."""

    parallel: SettledParallel
    offload: SettledOffload
    train: SettledTrain


SIMPLEST: dict[str, Any] = {
    **{f"parallel.{degree}": 1 for degree in ("tp", "pp", "vp", "cp", "ep")},
    "parallel.schedule": "1f1b",
    "parallel.sequence_parallel": False,
    "offload.optimizer": "none",
    "offload.parameters": "none",
    "train.recompute": "none",
}
"""By key what stands for `auto` where nothing is searched for."""

S = TypeVar("S", bound=Section)


def left_open(recipe: Recipe) -> list[str]:
    """Return the keys of SIMPLEST that a recipe leaves to the planner."""
    return [key for key in SIMPLEST if value_of(recipe, key) == "auto"]


def value_of(recipe: Recipe, key: str) -> Any:
    """Return the value of a key `section.field`."""
    section, field = key.split(".")
    return getattr(getattr(recipe, section), field)


def with_values(recipe: Recipe, chosen: Mapping[str, Any]) -> Recipe:
    """Return the recipe with other values, each trusted; what the user has set stays told from the rest."""
    sections = _by_section(chosen)
    changed = {name: _as(type(getattr(recipe, name)), getattr(recipe, name), new) for name, new in sections}
    return _as(type(recipe), recipe, changed)


def settled(recipe: Recipe, chosen: Mapping[str, Any]) -> SettledRecipe:
    """Return the recipe with values in place of `auto`; `chosen` holds every key that is left open."""
    recipe = with_values(recipe, chosen)
    sections = {name: _as(kind, getattr(recipe, name), {}) for name, kind in _SETTLED.items()}
    return _as(SettledRecipe, recipe, sections)


def _by_section(values: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, field = key.split(".")
        sections.setdefault(section, {})[field] = value
    return sections.items()


_SETTLED: dict[str, type[Section]] = {
    "parallel": SettledParallel,
    "offload": SettledOffload,
    "train": SettledTrain,
}


def _as(kind: type[S], section: Section, values: Mapping[str, Any]) -> S:
    """Return a section as another class of its own fields."""
    own = {name: getattr(section, name) for name in type(section).model_fields}
    made = kind.model_construct(_fields_set=set(section.model_fields_set), **{**own, **values})
    return cast("S", made)
