"""Where a value of a recipe came from: the layers, weakest first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dsforge.base.errors import Place


class Layer(StrEnum):
    """Layers of a recipe in order of precedence: a later one wins."""

    DEFAULT = "default"
    PRESET = "preset"
    EXTENDS = "extends"
    RECIPE = "recipe"
    PROFILE = "profile"
    ENVIRONMENT = "environment"
    ARGUMENT = "argument"


@dataclass(frozen=True, slots=True)
class Origin:
    """The layer that set a value. `name`: the preset, profile, variable or argument."""

    layer: Layer
    name: str | None = None
    variables: tuple[str, ...] = ()
    """What `${NAME}` references in the value stood for, such as `GB from the environment`."""


DEFAULT = Origin(Layer.DEFAULT)


def describe(origin: Origin, place: Place | None) -> str:
    """Return an origin for people: `recipe.yaml:5:12`, `profile smoke (recipe.yaml:9:3)`, `default`."""
    spot = str(place) if place is not None and place.line is not None else ""
    match origin.layer:
        case Layer.EXTENDS | Layer.RECIPE:
            text = spot
        case Layer.PROFILE:
            text = f"profile {origin.name} ({spot})"
        case Layer.ARGUMENT:
            text = f"argument `{origin.name}`"
        case Layer.DEFAULT if origin.name is not None:
            text = f"default: {origin.name}"
        case _:
            text = " ".join(filter(None, (origin.layer.value, origin.name)))
    return ", ".join((text, *origin.variables))


def as_dict(origin: Origin, place: Place | None) -> dict[str, Any]:
    """Return an origin as a JSON-ready mapping."""
    in_file = origin.layer in {Layer.EXTENDS, Layer.RECIPE, Layer.PROFILE}
    return {
        "layer": origin.layer.value,
        "name": origin.name,
        "place": place.as_dict() if place is not None and in_file else None,
        "variables": list(origin.variables),
        "text": describe(origin, place),
    }
