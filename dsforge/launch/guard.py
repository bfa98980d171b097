"""Starts the guard of an attempt (dsforge/rank/guard.py), which acts when this process is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def guarded(environ: Mapping[str, str], folder: Path) -> Iterator[int]:
    """Have a guard in a session of its own, and yield its process id; OSError when it cannot be started.

    `environ` is what the ranks have: it names lease and attempt.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "dsforge.rank.guard"],
        env=dict(environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
