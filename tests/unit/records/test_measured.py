"""Files that `tune` wrote and somebody changed: a number that cannot be is refused by its path."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from dsforge.plan.measurements import factor_of
from dsforge.records.calibration import parse_calibration
from dsforge.records.layer_times import parse_layer_times

PIECE = {"forward_seconds": 0.001, "backward_seconds": 0.002, "spread": 0.1}
SIZES = dict.fromkeys(("hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab", "seq_len"), 8)
TIMES: dict[str, Any] = {
    "kind": "layer-times",
    "schema_version": 2,
    "device": "x",
    "trainer": "forge",
    "micro": 2,
    "repeats": 15,
    "embedding": PIECE,
    "layer": PIECE,
    "head": PIECE,
    "of": {**SIZES, "arch": "llama", "tied": False, "precision": "fp32", "recompute": "none", "gpu": "cpu"},
}
TRIAL = {
    "values": {"parallel.tp": 2},
    "work_sha256": None,
    "failure": None,
    "run_id": None,
    "predicted_step_seconds": 5.0,
    "predicted_memory_bytes": 10**9,
    "measured": {"step_seconds": 6.0, "spread": 0.1, "steps": 6, "memory_bytes": 2 * 10**9},
}
CALIBRATION: dict[str, Any] = {
    "kind": "calibration",
    "schema_version": 1,
    "trials": [TRIAL],
    "setting": {
        "recipe_sha256": "x",
        "trainer": "forge",
        "gpu": "cpu",
        "gpus": 8,
        "host": "h",
        "steps": 8,
    },
}
HOSTILE: tuple[Any, ...] = (math.nan, math.inf, -math.inf, -1, 10**400, -(10**400), 10**300, 1e308, "1", True)
HARMLESS = {("trials", 0, "values", "parallel.tp"): ("1", True)}
"""What another value may be where a text or a truth is one, too."""
COMPARED = (-1, 1e-320, "1", True)
"""What would be another model's, which is no fault of the file."""


def _numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from _numbers(inner, (*path, key))
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def _with(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(data))
    node: Any = made
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return made


FILES = ((TIMES, parse_layer_times), (CALIBRATION, parse_calibration))
CASES = [(data, parse, path) for data, parse in FILES for path in _numbers(data)]


@pytest.mark.parametrize(("data", "parse", "path"), CASES, ids=[".".join(map(str, one[2])) for one in CASES])
def test_no_number_of_a_measured_file_is_taken_that_cannot_be(data: Any, parse: Any, path: Any):
    assert parse(data).schema_version == data["schema_version"]
    dotted = "schema.version" if path == ("schema_version",) else ".".join(map(str, path))
    for value in (*HOSTILE, 1e-320):
        broken = json.loads(json.dumps(_with(data, path, value)))
        is_small_share = path[-1] == "spread" and value == 1e-320
        if is_small_share or value in HARMLESS.get(path, ()) or (path[0] == "of" and value in COMPARED):
            parse(broken).to_json()
            continue
        with pytest.raises(ValueError, match=dotted) as caught:
            parse(broken)
        assert len(str(caught.value)) < 160


def test_a_layout_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match=r"trials\.0 and trials\.2"):
        parse_calibration({**CALIBRATION, "trials": [TRIAL, {**TRIAL, "values": {"parallel.tp": 4}}, TRIAL]})


def test_the_ends_of_what_is_taken_make_a_factor():
    measured = {"step_seconds": 1e6, "spread": 0, "steps": 1, "memory_bytes": 2**60}
    trial = {**TRIAL, "predicted_step_seconds": 1e-9, "predicted_memory_bytes": 1, "measured": measured}
    factor = factor_of(parse_calibration({**CALIBRATION, "trials": [trial]}))
    assert factor is not None
    assert factor.time == pytest.approx(1e15)
    assert factor.memory == 2**60
