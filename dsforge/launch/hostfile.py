"""Reads a hostfile as the deepspeed runner reads it (deepspeed/launcher/runner.py, `_parse_hostfile`)."""

from __future__ import annotations

import re
from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode

# As the engine has it: text after the digits is ignored there, so `slots=8x` counts as 8.
_ENTRY = re.compile(r"^(\S+)\s+slots=(\d+)")


def read_hostfile(path: Path) -> dict[str, int]:
    """Return slots by host in the file's order; DsforgeError for what the engine would refuse or drop."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path, None, f"the hostfile cannot be read: {error}") from error
    slots: dict[str, int] = {}
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _ENTRY.match(line)
        if match is None:
            raise _bad(path, number, f"{line!r} is not a hostfile entry")
        host, count = match[1], int(match[2])
        if host in slots:
            raise _bad(path, number, f"host {host} stands twice in the hostfile")
        if count == 0:
            raise _bad(path, number, f"host {host} has no slots")
        slots[host] = count
    if not slots:
        raise _bad(path, None, "the hostfile names no host")
    return slots


def _bad(path: Path, line: int | None, message: str) -> DsforgeError:
    return DsforgeError(
        code="launch/hostfile",
        message=message,
        place=Place(file=str(path), line=line),
        hint="one line a host: NAME slots=GPUS",
        exit_code=ExitCode.ENVIRONMENT,
    )
