from __future__ import annotations

import pytest

from dsforge.base.text import first_line, without_escapes


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[38;2;1;2;3mtrue\x1b[m colour", "true colour"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2K\x1b[1Gline", "line"),
        ("\x1b(Bascii\x1b=", "ascii"),
        ("a [rank 0] b[1]", "a [rank 0] b[1]"),
        ("", ""),
    ],
)
def test_terminal_sequences_are_taken_out(text, plain):
    assert without_escapes(text) == plain


def test_the_first_line_of_nothing_is_nothing():
    assert (first_line(""), first_line("a\nb"), first_line("a")) == ("", "a", "a")
