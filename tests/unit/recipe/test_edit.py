"""Edits change one value and leave every other byte of the file alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from dsforge.base.errors import DsforgeError
from dsforge.recipe.edit import edit, rename, unified_diff
from tests.support.recipes import SMALL

COMMENTED = """\
# top

version: 1   # the format
parallel:   {tp: 2,  pp: 2}  # flow, oddly spaced
batch:
    global:   32   # samples
    # between
    seq_len: 0x40

# about training
train:
optimizer:
  betas:
    - 0.9
    - 0.95   # second
  # trailing

name: 'it''s'
model: "gpt2"
launch: {env: {}}
"""


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("parallel.tp", 4, "{tp: 2,  pp: 2}", "{tp: 4,  pp: 2}"),
        ("parallel.zero", 1, "{tp: 2,  pp: 2}", "{tp: 2,  pp: 2, zero: 1}"),
        ("batch.global", 64, "32   # samples", "64   # samples"),
        ("batch.micro", "auto", "0x40\n", "0x40\n    micro: auto\n"),
        ("train.steps", 3, "train:\n", "train: {steps: 3}\n"),
        ("optimizer.lr", 1e-5, "second\n", "second\n  lr: 1.0e-05\n"),
        ("name", "x", "'it''s'", "'x'"),
        ("name", "it's", "'it''s'", "'it''s'"),
        ("model", "13B", '"gpt2"', '"13B"'),
        ("model", None, '"gpt2"', "null"),
        ("launch.env.A", "1", "{env: {}}", '{env: {A: "1"}}'),
        ("launch.env.A", "x y: z", "{env: {}}", '{env: {A: "x y: z"}}'),
        ("launch.restarts", 2, "{env: {}}", "{env: {}, restarts: 2}"),
        ("monitor.wandb", True, "launch: {env: {}}\n", "launch: {env: {}}\nmonitor: {wandb: true}\n"),
        ("optimizer.betas", [0.8, 0.9], "betas:\n    - 0.9\n    - 0.95", "betas: [0.8, 0.9]"),
        ("parallel", {"tp": 1}, "{tp: 2,  pp: 2}", "{tp: 1}"),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_one_edit_changes_one_place(key: str, value: Any, old: str, new: str, line_end: str, bom: str):
    before = bom + COMMENTED.replace("\n", line_end)
    assert COMMENTED.count(old) == 1
    wanted = bom + COMMENTED.replace(old, new).replace("\n", line_end)
    assert edit(before, {key: value}) == wanted


def test_a_file_without_a_last_line_end():
    assert edit("a: 1", {"b": 2}) == "a: 1\nb: 2\n"
    assert edit("{a: 1}", {"b": 2}) == "{a: 1, b: 2}"
    assert edit("a: {b: 1}\n", {"c.d": "e"}) == "a: {b: 1}\nc: {d: e}\n"


def test_anchors_go_through_the_library_and_aliases_stay_true():
    text = "a: &x 4   # anchored\nb: *x\n"
    with pytest.raises(DsforgeError) as caught:
        edit("s: &s {v: 1}\nt: *s\n", {"t.v": 2}, "r.yaml")
    assert (caught.value.code, str(caught.value.place)) == ("DSF007", "r.yaml")
    changed = edit(text, {"b": 5})
    assert changed == "a: &x 4   # anchored\nb: 5\n"
    merged = edit("d: &d {v: 1, w: 2}\ne:\n  <<: *d\n  w: 3\n", {"e.v": 9})
    assert YAML(typ="safe", pure=True).load(merged)["e"] == {"v": 9, "w": 3}
    assert YAML(typ="safe", pure=True).load(merged)["d"] == {"v": 1, "w": 2}


def test_a_key_is_renamed_where_it_stands():
    text = "batch:\n  size: 32  # samples\n  micro: 1\n"
    assert rename(text, "batch.size", "global") == text.replace("size", "global")
    for wrong in ("batch.nothing", "nothing.size"):
        with pytest.raises(DsforgeError):
            rename(text, wrong, "global")
    with pytest.raises(DsforgeError):
        rename(text, "batch.size", "micro")


def test_the_difference_reads_like_diff_u():
    assert unified_diff("a: 1\nb: 2\n", "a: 1\nb: 3\n", "r.yaml") == (
        "--- r.yaml\n+++ r.yaml\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n"
    )
    assert unified_diff("a", "a", "r") == ""


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Z")), max_size=20)
)


@given(
    key=st.sampled_from(["batch.global", "parallel.tp", "parallel.new", "train", "launch.env.A", "new.a.b"]),
    value=scalars | st.lists(scalars, max_size=3),
)
def test_an_edit_reads_back_as_the_value(key: str, value: Any):
    for text in (COMMENTED, SMALL):
        data = YAML(typ="safe", pure=True).load(edit(text, {key: value}))
        for part in key.split("."):
            data = data[part]
        assert data == value
        assert type(data) is type(value)
