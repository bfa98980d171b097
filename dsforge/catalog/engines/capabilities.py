"""What a trainer of this build honours, read from its data file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from ruamel.yaml import YAML


@dataclass(frozen=True, slots=True)
class Honoured:
    """The values of one recipe key that a trainer takes, and why it takes no others."""

    values: tuple[Any, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one trainer honours; a key that is not listed is honoured with any legal value."""

    trainer: str
    families: tuple[str, ...]
    """Model families whose shapes it builds."""
    honours: dict[str, Honoured]


@cache
def capabilities(trainer: str) -> Capabilities:
    """Return a trainer's capabilities; a trainer without a file falls back to the default one's table."""
    folder = resources.files("dsforge.catalog.engines")
    name = trainer if folder.joinpath(f"{trainer}.yaml").is_file() else "forge"
    table = YAML(typ="safe", pure=True).load(folder.joinpath(f"{name}.yaml").read_text("utf-8"))
    honours = {key: Honoured(tuple(row["values"]), row["why"]) for key, row in table["honours"].items()}
    return Capabilities(table["trainer"], tuple(table["families"]), honours)
