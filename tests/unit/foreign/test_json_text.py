"""JSON with places: what no reader takes is refused where it stands, hostile text included."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsforge.base.errors import DsforgeError
from dsforge.foreign.json_text import Placeholder, read_json

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | st.text(max_size=20).filter(lambda text: "$" not in text and "{{" not in text),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=5), st.sampled_from([None, 1, 4]))
def test_strict_json_reads_as_json(data: dict[str, Any], indent: int | None):
    read = read_json(json.dumps(data, indent=indent), "x.json")
    assert read.document.data == data
    assert read.lenient == []
    assert read.twice == []


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_at_a_place(text: str):
    fault = None
    try:
        read_json(text, "x.json")
    except DsforgeError as caught:
        fault = caught
    if fault is not None:
        assert fault.code == "DSF602"
        assert fault.place is not None
        assert fault.place.line is not None
        assert fault.hint


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ('{\n // batch\n "train_batch_size": 8,\n "fp16": {"enabled": True},\n}', "4:22", "write `true`"),
        ('{"a": None}', "1:7", "write `null`"),
        ("{'a': 1}", "1:2", "has no quotes"),
        ("{a: 1}", "1:2", "key `a` has no quotes"),
        ('{"a": 1 "b": 2}', "1:9", "a comma is missing"),
        ('{"a" 1}', "1:6", "no `:`"),
        ('{"a": {"b": 1}', "1:1", "not closed"),
        ('{"a": nan}', "1:7", "`nan` is no value"),
        ('{"a": 01}', "1:7", "no value"),
        ('{"a": "x\ny"}', "1:7", "closing quote"),
        ('{"a": "\\q"}', "1:7", "escape"),
        ('{"a": 1} {"b": 2}', "1:10", "more text"),
        ("[1, 2]", "1:1", "not an object"),
        ("", "1:1", "ends too early"),
    ],
)
def test_faults_are_placed(text: str, place: str, says: str):
    with pytest.raises(DsforgeError) as caught:
        read_json(text, "x.json")
    assert caught.value.code == "DSF602"
    assert str(caught.value.place) == f"x.json:{place}"
    assert says in f"{caught.value.message} {caught.value.hint}"


def test_places_of_nested_keys_and_placeholders():
    read = read_json('{\n  "a": {"b": [1, $X],\n "c": "{{ y }}"}\n}', "x.json")
    assert read.document.data == {"a": {"b": [1, Placeholder("$X")], "c": Placeholder("{{ y }}")}}
    assert str(read.document.place(("a", "c"))) == "x.json:3:2"
    assert str(read.document.place(("a", "b", 1))) == "x.json:2:18"
    assert [path for path, _ in read.placeholders] == [("a", "b", 1), ("a", "c")]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 5000,
        "[" * 100_000,
        '{"a": "' + "x" * 1_000_000,
        '{"a": ' + "9" * 5000 + "}",
        "{" + ",".join('"a": 1' for _ in range(5000)) + "}",
        "{" + "/*" * 100_000,
        '{"a": [' + "1," * 200_000 + "]}",
        "\\" * 100_000,
    ],
    ids=["deep", "brackets", "long-text", "long-number", "duplicates", "comments", "many", "backslashes"],
)
def test_hostile_texts_are_refused(text: str):
    with pytest.raises(DsforgeError) as caught:
        read_json(text, "x.json")
    assert caught.value.code == "DSF602"
    assert len(caught.value.message) < 300
