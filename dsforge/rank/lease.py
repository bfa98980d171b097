"""The supervisor's lease: an exclusive lock on a file, which the kernel frees when the supervisor dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def is_held(path: Path) -> bool:
    """Tell whether the supervisor still holds its lock; a lease that was removed is not held."""
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
