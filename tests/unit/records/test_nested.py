"""Files nested too deeply are told like any other that is not JSON, wherever dsforge reads JSON."""

from __future__ import annotations

import json

import pytest

from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError, Place
from dsforge.ops.lock import read_lock
from dsforge.rank.world import RankWorld, difference_from_plan
from dsforge.recipe.model_file import read_model_config
from dsforge.records.run_manifest import read_run_manifest
from dsforge.records.run_state import read_state
from dsforge.records.streams import read_lines
from dsforge.train.context import read_plan

DEEP = "[" * 200_000


def nested(depth):
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("text", [DEEP, nested(200_000), nested(102), '{"a":' * 102 + "1" + "}" * 102])
def test_what_is_nested_too_deeply_is_no_json(text):
    with pytest.raises(ValueError, match="nested too deeply"):
        loads(text)


def test_a_hundred_levels_are_read():
    assert loads(nested(100)) == json.loads(nested(100))
    assert loads('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize("text", [DEEP, nested(900)])
@pytest.mark.parametrize(
    ("read", "code"),
    [
        (read_lock, "DSF080"),
        (read_plan, "DSF302"),
        (lambda path: read_model_config(path, Place()), "DSF032"),
    ],
)
def test_readers_refuse_it_with_their_code(tmp_path, text, read, code):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(DsforgeError) as caught:
        read(path)
    assert caught.value.code == code


@pytest.mark.parametrize("text", [DEEP, nested(900)])
def test_records_of_a_run_are_passed_over(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_text(text)
    assert read_state(path) is None
    assert read_run_manifest(path) is None
    with pytest.raises(ValueError, match="nested too deeply"):
        difference_from_plan(RankWorld(0, 0, 1, 0), path)
    path.write_text(text + '\n{"kind": "event"}\n')
    assert [line for _, line in read_lines(path)] == [{"kind": "event"}]
