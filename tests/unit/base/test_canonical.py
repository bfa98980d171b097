"""Lines of streams are JSON whatever a figure has become."""

from __future__ import annotations

import json
import math

from dsforge.base.canonical import dump_line


def strict(text: str) -> object:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_what_is_no_number_is_null():
    value = {"loss": math.nan, "norms": [math.inf, (-math.inf, 2.5)], "step": 3, "note": "NaN"}
    assert strict(dump_line(value)) == {"loss": None, "norms": [None, [None, 2.5]], "step": 3, "note": "NaN"}


def test_a_line_keeps_its_order_and_its_end():
    assert dump_line({"b": 1, "a": "ü"}) == '{"b":1,"a":"ü"}\n'
