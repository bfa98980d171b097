"""Paths of a recipe start from the folder of the file they are written in, wherever it is extended from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

PATH_KEYS = (
    "cluster.hostfile",
    "offload.path",
    "data.tokenizer",
    "checkpoint.dir",
    "checkpoint.resume",
    "external.path",
    "checkpoint.init",
    "parallel.partition_weights",
)
DATA_SET_KEYS = ("data.train", "data.valid")
_WORDS = {"checkpoint.resume": ("auto", "never")}
"""Values that are words, not paths."""


def rebase(data: dict[str, Any], source: Path, target: Path) -> None:
    """Rewrite the relative paths of a file in `source` so that they mean the same from `target`.

    The way from one folder to the other is all that enters, so the result is the same on every machine.
    """
    way = os.path.relpath(source.resolve(), target.resolve())
    if way == os.curdir:
        return
    _rebase_tree(data, way)
    profiles = data.get("profiles")
    for profile in profiles.values() if isinstance(profiles, dict) else ():
        if isinstance(profile, dict):
            _rebase_tree(profile, way)


def _rebase_tree(data: dict[str, Any], way: str) -> None:
    model = data.get("model")
    if isinstance(model, str) and model.strip().endswith(".json"):
        data["model"] = _moved(model, way)  # the shape stands in a file of its own
    for dotted in (*PATH_KEYS, *DATA_SET_KEYS):
        name, key = dotted.split(".")
        section = data.get(name)
        if not isinstance(section, dict) or key not in section:
            continue
        value = section[key]
        if dotted in DATA_SET_KEYS:
            section[key] = _rebase_sets(value, way)
        elif value not in _WORDS.get(dotted, ()):
            section[key] = _moved(value, way)


def _rebase_sets(value: Any, way: str) -> Any:
    if not isinstance(value, list):
        return value
    return [
        [one[0], _moved(one[1], way)] if isinstance(one, list) and len(one) == 2 else one for one in value
    ]


def _moved(value: Any, way: str) -> Any:
    if not isinstance(value, str) or not value or Path(value).is_absolute():
        return value
    return os.path.normpath(Path(way) / value)
