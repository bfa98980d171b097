"""Looks over a YAML text before it becomes data: bounded in size and depth, and free of tags."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.parser import RoundTripParser

from dsforge.base.errors import DsforgeError, Place

MAX_NODES = 20_000
MAX_DEPTH = 40
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))


def strict_yaml() -> YAML:
    """Return a reader that keeps places and refuses duplicate keys."""
    yaml = YAML(typ="rt", pure=True)
    yaml.allow_duplicate_keys = False
    return yaml


def load(text: str, file: str) -> Any:
    """Return ruamel's tree of a text; DsforgeError DSF002 for one too deep, too large, endless, or tagged.

    Events come one at a time and are looked at before anything is made of them, so a hostile text is refused
    before it costs time or memory.
    """
    yaml = strict_yaml()
    yaml.Parser = partial(_Watched, file=file)
    return yaml.load(io.StringIO(text))


class _Watched(RoundTripParser):
    """A parser that looks at each event before it hands it on."""

    def __init__(self, loader: Any, file: str) -> None:
        super().__init__(loader=loader)
        self._file = file
        self._count = 0
        self._open_anchors: list[str | None] = []

    def get_event(self) -> Any:
        event = super().get_event()
        self._look_at(event)
        self._count += 1
        return event

    def _look_at(self, event: Any) -> None:
        if isinstance(event, CollectionStartEvent):
            self._open_anchors.append(event.anchor)
        elif isinstance(event, CollectionEndEvent):
            self._open_anchors.pop()
        elif isinstance(event, AliasEvent) and event.anchor in self._open_anchors:
            raise _fault(
                f"alias `*{event.anchor}` stands inside itself", event, self._file, "write the value out"
            )
        if len(self._open_anchors) > MAX_DEPTH:
            raise _fault("nested too deeply", event, self._file, "flatten the recipe")
        if self._count > 2 * MAX_NODES:
            raise _fault("holds too many values", event, self._file, "name a recipe, not a data file")
        tag = getattr(event, "tag", None)
        if tag is not None and str(tag) not in _PLAIN_TAGS:
            raise _fault(f"YAML tag `{tag}` is not allowed", event, self._file, "write a plain value")


def _fault(message: str, event: Any, file: str, hint: str) -> DsforgeError:
    mark = event.start_mark
    return DsforgeError("DSF002", message, Place(file, mark.line + 1, mark.column + 1), hint)
