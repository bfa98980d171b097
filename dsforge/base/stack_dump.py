"""Has a process write its stacks when it is asked, through the standard library's faulthandler.

It writes from the signal's handler, without the interpreter's help: also inside of a call that never returns.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from pathlib import Path

from dsforge.base import processes
from dsforge.base.processes import ProcessId

SIGNAL = signal.SIGRTMAX - 2
"""None that a training program uses for itself, as SIGUSR1 and SIGUSR2 are."""
_NAME = "dsforge-stacks"
_WAIT_SECONDS = 1.5
_TICK_SECONDS = 0.05


def install() -> None:
    """Answer from here on, into memory that others find among this process's open files; or do nothing."""
    try:
        # Held for as long as the process lives.
        faulthandler.register(SIGNAL, os.memfd_create(_NAME), all_threads=True)
    except (OSError, AttributeError, ValueError, RuntimeError):
        return  # a kernel or a Python without it


def ask(process: ProcessId) -> str | None:
    """Return what a process writes of its stacks; None where it does not answer or has not installed this."""
    answers = _answers_of(process.pid)
    if answers is None or not _catches(process.pid):
        return None
    try:
        with answers.open("rb") as stream:
            start = stream.seek(0, os.SEEK_END)
            if not processes.send_signal(process, SIGNAL):
                return None
            deadline = time.monotonic() + _WAIT_SECONDS
            before, size = start, start
            while time.monotonic() < deadline and (size == start or size != before):
                time.sleep(_TICK_SECONDS)
                before, size = size, stream.seek(0, os.SEEK_END)
            stream.seek(start)
            return stream.read().decode("utf-8", "replace") or None
    except OSError:
        return None


def _answers_of(pid: int) -> Path | None:
    try:
        handles = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None
    for handle in handles:
        try:
            if str(handle.readlink()).startswith(f"/memfd:{_NAME}"):
                return handle
        except OSError:
            continue
    return None


def _catches(pid: int) -> bool:
    """Tell whether the signal would not end the process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return False
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (SIGNAL - 1) & 1)
