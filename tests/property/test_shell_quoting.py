"""Text that passes dsforge.base.shell means itself to a real bash, whatever it holds."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsforge.base import shell

HOSTILE = ["; id", "$(id)", "`id`", "'", '"', "\\", "\n", " ", "", "-rf", "--", "*", "~", "!x", "\x1b"]
words = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
    | st.sampled_from(HOSTILE)
    | st.lists(st.sampled_from(HOSTILE), max_size=5).map("".join),
    max_size=6,
)
_ECHO = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"


def _through_bash(line: str) -> list[str]:
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout.decode().split("\0")


@settings(max_examples=40)
@given(words)
def test_words_round_trip_through_bash(drawn: list[str]):
    line = shell.join([sys.executable, "-S", "-c", _ECHO, *drawn])
    assert _through_bash(line) == (drawn or [""])


@settings(max_examples=40)
@given(words)
def test_exported_values_round_trip_through_bash(drawn: list[str]):
    exports = "\n".join(f"export V{n}={shell.quote(word)}" for n, word in enumerate(drawn))
    names = " ".join(f'"$V{n}"' for n in range(len(drawn)))
    assert _through_bash(f"set -eu\n{exports}\nprintf '%s\\0' {names} end") == [*drawn, "end", ""]


def test_nul_cannot_be_passed():
    with pytest.raises(ValueError, match="NUL"):
        shell.quote("a\0b")
