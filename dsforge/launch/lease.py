"""The supervisor's side of the lease: an exclusive lock held for as long as this process lives."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lease; OSError when the file cannot be made or locked. The handle never passes to a child."""
    with path.open("w", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
