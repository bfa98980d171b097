"""Text that others wrote, made fit to be read on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable

# ECMA-48: control sequences (CSI), operating-system commands (OSC, ended by BEL or ST), two-byte escapes.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-Z\\^-~]")

SECRET_NAME = re.compile(r"(^|_)(TOKEN|SECRET|PASS(WORD|WD)?|PAT|(API)?KEY|CREDENTIALS?)(_|$)", re.IGNORECASE)
"""A name that a value stands under which nobody else should read."""
_SECRET_OPTION = re.compile(r"(key|token|passw(or)?d|secret|credentials?)$", re.IGNORECASE)
_NAMED_VALUE = re.compile(
    # An option and its value, then any name and its value.
    r"""(?:^|(?<=[\s"'\[]))--?([A-Za-z][\w.-]*)["']?(?:\s*[=,]\s*|\s+)(?=[^\s\\])"""
    r"""|([A-Za-z_][A-Za-z0-9_]*)["']?\s*[:=]\s*(?=\S)"""
)


def without_escapes(text: str) -> str:
    """Return a text without colours and other terminal sequences."""
    return _ESCAPES.sub("", text)


def printable(text: str) -> str:
    """Return a text without control characters, so that a hostile name cannot drive the terminal."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] if char != "\x1b" else "\\x1b"
        for char in text
    )


def one_line(text: str) -> str:
    """Return a text whose line breaks are shown, not made: a name cannot forge a line of ours."""
    return text.replace("\n", "\\n").replace("\r", "\\r")


def shortened(text: str, most: int) -> str:
    """Return a text with its middle left out where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    tail = most // 4
    return f"{text[: most - tail]} [...] {text[-tail:]}"


def first_line(text: str) -> str:
    """Return the first line of a text; empty for an empty one."""
    return text.partition("\n")[0]


def counted(number: int, what: str) -> str:
    """Return `1 rank`, `2 ranks`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def without_secrets(line: str) -> str:
    """Return a line of a file up to what stands behind the name of a secret."""
    for match in _NAMED_VALUE.finditer(line):
        if _SECRET_OPTION.search(match[1]) if match[1] else SECRET_NAME.search(match[2]):
            return line[: match.end()] + "..."
    return line


def in_runs(numbers: Iterable[int], most: int = 8) -> str:
    """Return numbers in order as `0-3, 6, 8`, the first `most` runs of them and how many are left out."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] + 1 == number:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    told = ", ".join("-".join(map(str, run)) for run in runs[:most])
    left = sum(run[-1] - run[0] + 1 for run in runs[most:])
    return f"{told} and {left} more" if left else told
