"""Reads the Hugging Face `config.json` that a recipe may name as its model; nothing in it is run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.files import check_regular

_MAX_BYTES = 1 << 20


def names_config(model: object) -> bool:
    """Tell whether a recipe's `model` is the path of a JSON file."""
    return isinstance(model, str) and model.strip().endswith(".json")


def read_model_config(path: Path, place: Place) -> Mapping[str, Any]:
    """Return a parsed `config.json`; DsforgeError DSF032 when it cannot be read as a JSON object."""
    hint = "name an existing config.json, relative to the recipe"
    try:
        check_regular(path)
        with path.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise DsforgeError("DSF032", f"{path} is larger than 1 MiB", place, hint)
        values = loads(raw.decode("utf-8-sig"), object_pairs_hook=_distinct)
    except OSError as error:
        raise DsforgeError("DSF032", f"{path} cannot be read: {error.strerror}", place, hint) from None
    except ValueError as error:
        raise DsforgeError("DSF032", f"{path} is not valid JSON: {error}", place, hint) from None
    if not isinstance(values, dict):
        raise DsforgeError("DSF032", f"{path} is not a JSON object", place, hint)
    return values


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice")
    return values
