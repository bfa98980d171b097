"""A lease: a lock on a file for as long as its holder lives; the kernel frees it, however that one dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold a lease; OSError when the file cannot be made or locked. The handle never passes to a child."""
    with path.open("w", encoding="ascii") as stream:
        # Waits: who looks at a lease shares it for an instant.
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def is_held(path: Path) -> bool:
    """Tell whether somebody holds a lease; one whose file was removed is not held."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # out of file handles or a file system that stalls: no proof of death
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
