"""Findings, fixes and places as text and as JSON."""

from __future__ import annotations

import pytest

from dsforge.base.errors import Finding, Fix, Place, Severity
from dsforge.recipe.document import parse_value


@pytest.mark.parametrize("value", [None, True, False, 0, 36, 3e-05, "cpu", "auto"])
def test_a_fix_reads_back_as_its_value(value: object):
    key, _, text = str(Fix("section.key", value)).partition("=")
    assert key == "section.key"
    assert parse_value(text, "a test") == value


def test_a_place_says_as_much_as_it_knows():
    assert str(Place("r.yaml", 3, 7)) == "r.yaml:3:7"
    assert str(Place("r.yaml", 3)) == "r.yaml:3"
    assert str(Place("r.yaml")) == "r.yaml"
    assert str(Place("hosts", host="node1", rank=0)) == "hosts, host node1, rank 0"
    assert str(Place()) == ""
    assert Place("r.yaml", rank=0).as_dict() == {"file": "r.yaml", "rank": 0}


def test_a_finding_survives_json():
    full = Finding("DSF1", Severity.ERROR, "m", "k", Place("f", 1, 2, "h", 0), "hint", Fix("k", 1))
    bare = Finding("DSF2", Severity.NOTE, "m")
    for finding in (full, bare):
        assert Finding.from_dict(finding.as_dict()) == finding
