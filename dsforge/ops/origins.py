"""Every value of a resolved recipe with its origin, the shape behind a model's name included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.catalog.tables import find_model
from dsforge.recipe.document import KeyPath
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.origins import Layer, Origin, as_dict, describe
from dsforge.recipe.resolved import resolved_data
from dsforge.recipe.yaml_text import block_lines, flow_text

PRECEDENCE = "defaults < preset < extends < recipe < profile < environment < arguments"


@dataclass(frozen=True, slots=True)
class OriginLine:
    """A line of the resolved recipe as YAML; `origin` is empty for the head of a section."""

    text: str
    origin: str


def lines(loaded: LoadedRecipe) -> list[OriginLine]:
    """Return the resolved recipe as YAML that loads again, line by line with origins.

    What a preset stands for follows as comments, because a recipe names it or writes it out.
    """
    found = []
    for path, text in block_lines(_data(loaded)):
        found.append(OriginLine(text, "" if text.endswith(":") else _text(loaded, path)))
        if path == ("model",):
            found += _preset_lines(loaded)
    return found


def values(loaded: LoadedRecipe) -> list[dict[str, Any]]:
    """Return key, value and origin of every value, JSON-ready."""
    data, found = _data(loaded), []
    for path, text in block_lines(data):
        if text.endswith(":"):
            continue
        node: Any = data
        for key in path:
            node = node[key]
        origin = as_dict(loaded.document.origin(path), loaded.document.place(path))
        found.append({"key": ".".join(map(str, path)), "value": node, "origin": origin})
    for key, value in _preset(loaded).items():
        origin = as_dict(Origin(Layer.PRESET, str(loaded.recipe.model)), None)
        found.append({"key": f"model.{key}", "value": value, "origin": origin})
    return found


def _data(loaded: LoadedRecipe) -> dict[str, Any]:
    """The chosen profile's values stand in their places, so the profiles themselves are left out."""
    data = resolved_data(loaded.recipe)
    del data["profiles"]
    return data


def _text(loaded: LoadedRecipe, path: KeyPath) -> str:
    return describe(loaded.document.origin(path), loaded.document.place(path))


def _preset(loaded: LoadedRecipe) -> dict[str, Any]:
    """Return the shape that the catalogue keeps under the model's name, as far as it has one."""
    if not isinstance(loaded.recipe.model, str):
        return {}
    try:
        return dict(find_model(loaded.recipe.model).shape)
    except DsforgeError:
        return {}  # `validate` says so; here the name is shown as it stands


def _preset_lines(loaded: LoadedRecipe) -> list[OriginLine]:
    told = describe(Origin(Layer.PRESET, str(loaded.recipe.model)), None)
    return [OriginLine(f"#   {key}: {flow_text(value)}", told) for key, value in _preset(loaded).items()]
