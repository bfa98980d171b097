"""Secrets that a launcher left in a file: taken over by every rank of a host, removed by the last."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_READ = b"."


def take_secrets(path: Path, readers: int) -> dict[str, str]:
    """Return the secrets in a file of `NAME=value` entries, each ended by a NUL byte; OSError.

    Each reader leaves a mark behind the entries; the one that makes `readers` of them removes the file.
    """
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        entries, _, marks = file.read().rpartition(b"\0")
        if len(marks) + 1 >= readers:
            path.unlink()
        else:
            file.write(_READ)
            file.flush()
    named = (os.fsdecode(entry).partition("=") for entry in entries.split(b"\0") if entry)
    return {name: value for name, _, value in named}
