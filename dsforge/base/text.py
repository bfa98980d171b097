"""Text that others wrote, made fit to be read on a terminal."""

from __future__ import annotations

import re

# ECMA-48: control sequences (CSI), operating-system commands (OSC, ended by BEL or ST), two-byte escapes.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-Z\\^-~]")


def without_escapes(text: str) -> str:
    """Return a text without colours and other terminal sequences."""
    return _ESCAPES.sub("", text)


def first_line(text: str) -> str:
    """Return the first line of a text; empty for an empty one."""
    return text.partition("\n")[0]
