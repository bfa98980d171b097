"""Lays one layer of a recipe over another; places and origins follow their values."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from dsforge.base.errors import DsforgeError, Place
from dsforge.recipe.document import Document, KeyPath
from dsforge.recipe.origins import Layer, Origin


def merge(base: dict[str, Any], change: Mapping[str, Any]) -> None:
    """Lay a change over a tree in place: mappings merge, anything else replaces."""
    _merge(base, change, (), set())


def _merge(base: dict[str, Any], change: Mapping[str, Any], at: KeyPath, replaced: set[KeyPath]) -> None:
    for key, value in change.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value, (*at, key), replaced)
        else:
            base[key] = copy.deepcopy(value)
            replaced.add((*at, key))


def lay_over(base: Document, change: Document) -> None:
    """Merge a document into another in place; what is replaced loses its places and origins."""
    replaced: set[KeyPath] = set()
    _merge(base.data, change.data, (), replaced)
    for known in (base.places, base.origins):
        for path in [p for p in known if any(p[:n] in replaced for n in range(1, len(p) + 1))]:
            del known[path]
    base.places.update(change.places)
    base.origins.update(change.origins)


def mark(document: Document, layer: Layer, name: str | None = None) -> None:
    """Say of every value of a document that this layer set it."""
    document.origins = {
        path: Origin(layer, name, document.origins[path].variables if path in document.origins else ())
        for path in document.places
        if path
    }


def part(document: Document, prefix: KeyPath) -> Document:
    """Return the mapping at a path as a document of its own, with its places and origins."""
    data: Any = document.data
    for key in prefix:
        data = data[key]
    depth = len(prefix)

    def inside(known: Mapping[KeyPath, Any]) -> dict[KeyPath, Any]:
        return {path[depth:]: what for path, what in known.items() if path[:depth] == prefix and path[depth:]}

    return Document(data, inside(document.places), inside(document.origins))


def put(document: Document, path: KeyPath, value: Any, place: Place, origin: Origin) -> None:
    """Set one value; DsforgeError DSF021 when a key on the way to it holds no section."""
    tree = document.data
    for depth, key in enumerate(path[:-1]):
        if key not in tree:
            document.places[path[: depth + 1]] = place  # or a misspelt section would stand nowhere
        inner = tree.setdefault(str(key), {})
        if not isinstance(inner, dict):
            at = ".".join(str(p) for p in path[: depth + 1])
            dotted = ".".join(str(p) for p in path)
            raise DsforgeError(
                "DSF021",
                f"`{at}` is a value, not a section, so `{dotted}` cannot be set",
                place,
                f"set {at} itself",
            )
        tree = inner
    tree[str(path[-1])] = value
    _forget(document, path)
    document.places[path] = place
    document.origins[path] = origin


def take_out(document: Document, path: KeyPath) -> None:
    """Remove one key, so that its default holds; nothing when it is not there."""
    tree: Any = document.data
    for key in path[:-1]:
        tree = tree.get(key) if isinstance(tree, dict) else None
    if isinstance(tree, dict):
        tree.pop(path[-1], None)
        _forget(document, path)


def _forget(document: Document, path: KeyPath) -> None:
    for known in (document.places, document.origins):
        for stale in [p for p in known if p[: len(path)] == path]:
            del known[stale]
