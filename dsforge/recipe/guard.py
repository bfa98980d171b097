"""Looks over a YAML text before it becomes data: bounded in size and depth, and free of tags."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML

from dsforge.base.errors import DsforgeError, Place

MAX_NODES = 20_000
MAX_DEPTH = 40
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))


def strict_yaml() -> YAML:
    """Return a reader that keeps places and refuses duplicate keys."""
    yaml = YAML(typ="rt", pure=True)
    yaml.allow_duplicate_keys = False
    return yaml


def look_over(text: str, file: str) -> None:
    """Raise DsforgeError DSF002 for a text that is nested too deeply, too large, or holds a tag.

    Events come one at a time, so a hostile text is refused before it costs time or memory.
    """
    depth = 0
    for count, event in enumerate(strict_yaml().parse(io.StringIO(text))):
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > MAX_DEPTH:
            raise _fault("nested too deeply", event, file, "flatten the recipe")
        if count > 2 * MAX_NODES:
            raise _fault("holds too many values", event, file, "name a recipe, not a data file")
        tag = getattr(event, "tag", None)
        if tag is not None and str(tag) not in _PLAIN_TAGS:
            raise _fault(f"YAML tag `{tag}` is not allowed", event, file, "write a plain value")


def _fault(message: str, event: Any, file: str, hint: str) -> DsforgeError:
    mark = event.start_mark
    return DsforgeError("DSF002", message, Place(file, mark.line + 1, mark.column + 1), hint)
