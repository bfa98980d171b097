"""Looks over a YAML text before it becomes data: bounded in size and depth, and free of tags."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

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
    """Raise DsforgeError DSF002 for a text that is too deep, too large, endless, or holds a tag.

    Events come one at a time, so a hostile text is refused before it costs time or memory.
    """
    open_anchors: list[str | None] = []
    for count, event in enumerate(strict_yaml().parse(io.StringIO(text))):
        if isinstance(event, CollectionStartEvent):
            open_anchors.append(event.anchor)
        elif isinstance(event, CollectionEndEvent):
            open_anchors.pop()
        elif isinstance(event, AliasEvent) and event.anchor in open_anchors:
            raise _fault(f"alias `*{event.anchor}` stands inside itself", event, file, "write the value out")
        if len(open_anchors) > MAX_DEPTH:
            raise _fault("nested too deeply", event, file, "flatten the recipe")
        if count > 2 * MAX_NODES:
            raise _fault("holds too many values", event, file, "name a recipe, not a data file")
        tag = getattr(event, "tag", None)
        if tag is not None and str(tag) not in _PLAIN_TAGS:
            raise _fault(f"YAML tag `{tag}` is not allowed", event, file, "write a plain value")


def _fault(message: str, event: Any, file: str, hint: str) -> DsforgeError:
    mark = event.start_mark
    return DsforgeError("DSF002", message, Place(file, mark.line + 1, mark.column + 1), hint)
