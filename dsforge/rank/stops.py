"""Why a rank should end before its trainer does: a signal, a dead parent, a lost lease."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from dsforge.base import lease, prctl

LEASE_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Stop:
    """A reason to end: `cause` is one of ExitRecord's, `signal` what was received if it was one."""

    cause: str
    signal: int | None
    message: str


class StopWatch:
    """Collects reasons to end; the first one counts."""

    def __init__(self, lease_path: Path | None) -> None:
        """Install the handlers and the parent-death signal; call from the main thread."""
        self._lease = lease_path
        self._next_lease_check = 0.0
        self._signal: int | None = None
        self._parent = os.getppid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._receive)
        # SIGTERM rather than SIGKILL: the rank still has a trainer to end and a record to write.
        prctl.signal_on_parent_death(signal.SIGTERM)

    def reason(self) -> Stop | None:
        """Return why this rank should end now, or None."""
        if os.getppid() != self._parent:
            return Stop("parent_died", None, f"the process that started this rank (pid {self._parent}) died")
        if self._signal is not None:
            name = signal.Signals(self._signal).name
            return Stop("stopped", self._signal, f"told to stop by {name}")
        if self._lease is not None and time.monotonic() >= self._next_lease_check:
            self._next_lease_check = time.monotonic() + LEASE_CHECK_SECONDS
            if not lease.is_held(self._lease):
                return Stop("lease_lost", None, "the supervisor (dsforge launch) died")
        return None

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._signal is None:
            self._signal = number
