"""The keys of a GPT-NeoX configuration and their defaults, from its data file."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def neox_keys() -> dict[str, Any]:
    """Return the default of each top-level key, None where the program has none or works it out."""
    file = resources.files("dsforge.catalog.engines") / "options" / "gpt-neox.json"
    table: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return table
