from __future__ import annotations

import pytest

from dsforge.base.text import first_line, without_escapes, without_secrets


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


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("python t.py --wandb-key abc --x 1", "python t.py --wandb-key ..."),
        ("python t.py --api-key=abc", "python t.py --api-key=..."),
        ("--lr 1 --wandb.api-key 'abc'", "--lr 1 --wandb.api-key ..."),
        ("--hftoken abc", "--hftoken ..."),
        ("arguments: [--password, abc, --x]", "arguments: [--password, ..."),
        ('["--db-secret", "abc"]', '["--db-secret", ...'),
        ("export HF_TOKEN=abc", "export HF_TOKEN=..."),
        ('"api_key": "abc"', '"api_key": ...'),
        ("--key-value-channels 4 --token-dropping 1", "--key-value-channels 4 --token-dropping 1"),
        ("--wandb-key \\", "--wandb-key \\"),
    ],
)
def test_what_stands_behind_the_name_of_a_secret_is_not_shown(line, shown):
    assert without_secrets(line) == shown
