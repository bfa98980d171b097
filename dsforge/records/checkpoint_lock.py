"""The lock on a checkpoint folder: one run at a time saves there."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode

LOCK_NAME = ".in-use"
_PATIENCE_SECONDS = 1.0
"""Who looks whether the folder is free shares the lock for an instant."""
_TICK_SECONDS = 0.05


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold a folder; OSError, DsforgeError DSF336 where another run holds it."""
    with (folder / LOCK_NAME).open("a") as stream:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not _takes(stream, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise _in_use(folder)
            time.sleep(_TICK_SECONDS)
        yield


def check_free(folder: Path) -> None:
    """Raise DsforgeError DSF336 where another run holds a folder, as far as this host can tell."""
    try:
        with (folder / LOCK_NAME).open() as stream:
            is_free = _takes(stream, fcntl.LOCK_SH)
    except OSError:
        return  # nobody has held it yet, or the file system has no locks: the ranks ask again
    if not is_free:
        raise _in_use(folder)


def _takes(stream: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _in_use(folder: Path) -> DsforgeError:
    return DsforgeError(
        "DSF336",
        "another run saves its checkpoints here",
        Place(file=str(folder)),
        "wait for it, stop it, or name another checkpoint.dir",
        ExitCode.BEFORE_FIRST_STEP,
    )
