"""Reads the catalogue's YAML files."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from ruamel.yaml import YAML


@cache
def table(name: str) -> dict[str, Any]:
    """Return one file of `catalog/data/` as plain data, in the order it is written in."""
    text = resources.files("dsforge.catalog").joinpath("data", f"{name}.yaml").read_text("utf-8")
    rows: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return rows
