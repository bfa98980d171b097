"""Texts that a shell would take for something else, and a program that writes down how it was called."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import strategies as st

HOSTILE = [
    "; touch PWNED",
    "$(touch PWNED)",
    "`touch PWNED`",
    "' ; touch PWNED; '",
    '"$(touch PWNED)"',
    "\\",
    "-rf",
    "--",
    "a~",
    "*",
    "a b",
    "$HOME",
    "${IFS}",
    "%s",
    "&& touch PWNED",
    "\x1b[31m",
    "é",
    "=",
    "#",
    "{{ x }}",
    "{% x %}",
]
_DUMP = """#!{python} -S
import json, os, sys
everything = {{os.fsdecode(k): os.fsdecode(v) for k, v in os.environb.items()}}
open({out!r}, "w", encoding="ascii").write(json.dumps([sys.argv[1:], everything]))
"""
one_line = st.text(
    st.characters(exclude_characters="\0\n\r", exclude_categories=("Cs",)), min_size=1, max_size=12
) | st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=4).map("".join)
# Any legal name but those that decide how programs are found and loaded.
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True) | st.sampled_from(
    ["here", "checkpoints", "PS4", "HOSTNAME", "LC_ALL", "CDPATH", "NCCL_IB_HCA", "name", "line", "BASH_ENV"]
)


def recorder(program: Path, out: Path) -> None:
    """Write a program that notes its arguments and whole environment as JSON."""
    program.write_text(_DUMP.format(python=sys.executable, out=str(out)))
    program.chmod(0o755)
