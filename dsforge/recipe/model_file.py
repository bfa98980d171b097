"""Reads the Hugging Face `config.json` that a recipe may name as its model; nothing in it is run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.json_file import read_object

MOST_CONFIG_BYTES = 1 << 20


def names_config(model: object) -> bool:
    """Tell whether a recipe's `model` is the path of a JSON file."""
    return isinstance(model, str) and model.strip().endswith(".json")


def read_model_config(path: Path, place: Place) -> Mapping[str, Any]:
    """Return a parsed `config.json`; DsforgeError DSF032 when it cannot be read as a JSON object."""
    hint = "name an existing config.json, relative to the recipe"
    try:
        return read_object(path, MOST_CONFIG_BYTES)
    except OSError as error:
        raise DsforgeError("DSF032", f"{path} cannot be read: {error.strerror}", place, hint) from None
    except ValueError as error:
        raise DsforgeError("DSF032", f"{path} is not valid JSON: {error}", place, hint) from None
