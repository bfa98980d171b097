"""Every single-field fault of a list, made from a good recipe: its text, and where the finding must point.

What is a fault is told by the published JSON Schema for types and ranges, not by the loader under test.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

Path_ = tuple[str | int, ...]
Place = tuple[int, int]

WRONG_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    "",
    "12 parsecs",
    "auto",
    "2",
    [],
    [1, 2, 3],
    {"turbo": 1},
)


FREE = (
    *("launch.env.", "profiles.", "launch.pbs.resources."),
    *(f"launch.kubernetes.{key}." for key in ("volumes", "resources", "node_selector", "labels")),
)
"""Mappings whose keys are the user's own: any name is a good one."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`codes`: any of these is right. `place`: line and column of the finding, from 1."""

    name: str
    text: str
    codes: frozenset[str]
    place: Place
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A recipe's text in block style, and where each key stands in it, which is where findings point."""

    text: str
    keys: dict[Path_, Place]


def write(tree: dict[str, Any]) -> Written:
    """Return a recipe's text with one key a line; lists and empty sections in flow style."""
    lines: list[str] = []
    keys: dict[Path_, Place] = {}

    def put(node: dict[str, Any], path: Path_) -> None:
        indent = "  " * len(path)
        for key, value in node.items():
            here = (*path, key)
            keys[here] = (len(lines) + 1, len(indent) + 1)
            if isinstance(value, dict) and value:
                lines.append(f"{indent}{key}:")
                put(value, here)
            else:
                lines.append(f"{indent}{key}: {json.dumps(value)}")

    put(tree, ())
    return Written("\n".join(lines) + "\n", keys)


def _at(tree: Any, path: Path_) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _with(tree: dict[str, Any], path: Path_, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(tree)
    _at(changed, path[:-1])[path[-1]] = copy.deepcopy(value)
    return changed


def _renamed(tree: dict[str, Any], path: Path_, name: str) -> dict[str, Any]:
    """Return the tree with a key under another name, at the same place among its neighbours."""
    if len(path) == 1:
        return {name if key == path[0] else key: value for key, value in tree.items()}
    return {key: _renamed(value, path[1:], name) if key == path[0] else value for key, value in tree.items()}


def _without(tree: dict[str, Any], path: Path_) -> dict[str, Any]:
    changed = copy.deepcopy(tree)
    del _at(changed, path[:-1])[path[-1]]
    return changed


def faults_of(tree: dict[str, Any], schema: dict[str, Any]) -> Iterator[Fault]:
    """Yield the faults of one good recipe in a fixed order."""
    good = write(tree)
    validator = jsonschema.Draft202012Validator(schema)
    for path in good.keys:
        dotted = ".".join(map(str, path))
        yield from _wrong_values(tree, path, validator)
        if not dotted.startswith(FREE):
            yield _misspelt(tree, path)
        yield _twice(good, path)
        if not validator.is_valid(_without(tree, path)):
            section = good.keys[path[:-1]] if path[:-1] else (1, 1)
            text = write(_without(tree, path)).text
            yield Fault(f"{dotted} missing", text, frozenset({"DSF010", "DSF006"}), section)
    yield from _broken_text(good)


def _wrong_values(
    tree: dict[str, Any], path: Path_, validator: jsonschema.protocols.Validator
) -> Iterator[Fault]:
    for value in WRONG_VALUES:
        changed = _with(tree, path, value)
        if not validator.is_valid(changed):
            bad = write(changed)
            # A section's own unknown key, else the key that holds what is no section.
            inner = isinstance(value, dict) and (path == ("model",) or isinstance(_at(tree, path), dict))
            place = bad.keys[(*path, "turbo")] if inner else bad.keys[path]
            codes = frozenset({"DSF010", "DSF011", "DSF006"})
            if isinstance(value, list) and value and validator.is_valid(_with(tree, path, [])):
                place = (place[0], place[1] + len(f"{path[-1]}: ["))  # the list is right, its items are not
            yield Fault(f"{'.'.join(map(str, path))}={value!r}", bad.text, codes, place)


def _misspelt(tree: dict[str, Any], path: Path_) -> Fault:
    key = str(path[-1])
    name = key[0] + key[0] + key[1:]
    bad = write(_renamed(tree, path, name))
    place = bad.keys[(*path[:-1], name)]
    return Fault(f"{'.'.join(map(str, path))} misspelt", bad.text, frozenset({"DSF011"}), place, key)


def _twice(good: Written, path: Path_) -> Fault:
    line, column = good.keys[path]
    lines = good.text.splitlines()
    deeper = [place[0] for other, place in good.keys.items() if other[: len(path)] == path]
    block = lines[line - 1 : max(deeper)]
    lines[max(deeper) : max(deeper)] = block
    second = max(deeper) + 1
    name = f"{'.'.join(map(str, path))} twice"
    return Fault(name, "\n".join(lines) + "\n", frozenset({"DSF003"}), (second, column))


def _broken_text(good: Written) -> Iterator[Fault]:
    lines = good.text.splitlines()
    for number, line in enumerate(lines):
        if line.endswith(":"):
            continue
        key, _, _ = line.partition(":")
        column = len(key) + 3
        for what, broken in (
            ("unclosed list", f"{key}: [1, 2"),
            ("a tag", f"{key}: !!python/name:os.system"),
        ):
            text = "\n".join([*lines[:number], broken, *lines[number + 1 :]]) + "\n"
            yield Fault(f"{key.strip()}: {what}", text, frozenset({"DSF002"}), (number + 1, column))


def illegal_values(tree: dict[str, Any], plan: dict[str, Any]) -> Iterator[Fault]:
    """Yield values that any recipe might hold but this one: its layout, model and length forbid them."""
    layout, batch, model = plan["layout"], plan["batch"], plan["model"]
    samples = batch["micro"] * layout["dp"]
    wrong: dict[Path_, tuple[Any, str]] = {
        ("cluster", "gpu"): ("a100-sxm-81gb", "DSF031"),
        ("parallel", "tp"): (model["heads"] + 1, "DSF101"),
        ("parallel", "pp"): (model["layers"] + 1, "DSF107"),
        ("parallel", "dp"): (layout["dp"] + 1, "DSF110"),
        ("parallel", "zero"): (3 if layout["pp"] > 1 else None, "DSF120"),
        ("batch", "global"): (batch["global_size"] + 1 if samples > 1 else None, "DSF111"),
        ("optimizer", "warmup_steps"): (plan["train"]["steps"], "DSF114"),
        ("optimizer", "min_lr"): (2 * plan["optimizer"]["lr"], "DSF114"),
        ("train", "seed"): (2**63, "DSF010"),
    }
    if isinstance(tree["model"], str):
        wrong["model",] = (f"{tree['model']}x", "DSF030")
    if model["position"] == "learned":
        wrong["batch", "seq_len"] = (model["max_positions"] + 1, "DSF112")
    for path, (value, code) in wrong.items():
        if value is not None and path[0] in tree and (len(path) == 1 or path[1] in tree[path[0]]):
            bad = write(_with(tree, path, value))
            yield Fault(f"{path}={value}", bad.text, frozenset({code}), bad.keys[path])


def read_schema(path: Path) -> dict[str, Any]:
    """Return the published schema."""
    schema: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return schema
