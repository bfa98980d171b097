"""Why a rank should end before its trainer does: it was asked to, or somebody it depends on is dead."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from dsforge.base import prctl
from dsforge.base.lease import LeaseWatch
from dsforge.base.processes import signal_name

LEASE_CHECK_SECONDS = 1.0
_REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Stop:
    """A reason to end: `cause` is one of ExitRecord's, `signal` what was received if it was one.

    `asked_at`: when a request came or a parent died, in seconds since the epoch; None where nobody asked.
    """

    cause: str
    signal: int | None
    message: str
    asked_at: float | None = None


class StopWatch:
    """Collects reasons to end: a request, which a trainer is given time for, and what leaves none."""

    def __init__(self, lease_path: Path | None, request_path: Path | None = None) -> None:
        """Install the handlers and the parent-death signal; call from the main thread.

        `request_path`: where a supervisor on another host writes the signal that it cannot send.
        """
        self.request: Stop | None = None
        """The first SIGTERM, SIGINT or SIGHUP."""
        self._lease = LeaseWatch(lease_path) if lease_path else None
        self._request_path = request_path
        self._next_look = 0.0
        self._written: set[int] = set()
        self._requested = 0.0
        self._interrupts = 0
        self._at_once: int | None = None
        self._parent = os.getppid()
        for number in (*_REQUESTS, signal.SIGQUIT):
            signal.signal(number, self._receive)
        # SIGTERM rather than SIGKILL: the rank still has a trainer to end and a record to write.
        prctl.signal_on_parent_death(signal.SIGTERM)

    def at_once(self, patience_seconds: float) -> Stop | None:
        """Return why the trainer must end now, or None; a request has `patience_seconds`, 0 for no limit."""
        if os.getppid() != self._parent:
            message = f"the process that started this rank (pid {self._parent}) died"
            return Stop("parent_died", None, message, time.time())
        looks = time.monotonic() >= self._next_look
        if looks:
            self._next_look = time.monotonic() + LEASE_CHECK_SECONDS
            self._read_request()
        if self._at_once is not None:
            return Stop("stopped", self._at_once, f"ended at once by {signal_name(self._at_once)}")
        if looks and self._lease is not None and not self._lease.is_held():
            return Stop("lease_lost", None, "the supervisor (dsforge launch) died")
        if self.request is not None and 0 < patience_seconds < time.monotonic() - self._requested:
            late = f"not done within launch.stop_timeout, {patience_seconds:g} s"
            return replace(self.request, message=f"{self.request.message}; {late}")
        return None

    def _read_request(self) -> None:
        if self._request_path is None:
            return
        try:
            number = int(self._request_path.read_text("ascii"))
        except (OSError, ValueError):
            return
        if number not in self._written:
            self._written.add(number)
            self._receive(number, None)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        # One Ctrl-C is one SIGINT here, whatever launchers make of it: they pass on SIGTERM.
        self._interrupts += number == signal.SIGINT
        if number == signal.SIGQUIT or self._interrupts > 1:
            self._at_once = number
        if number in _REQUESTS and self.request is None:
            self._requested = time.monotonic()
            self.request = Stop("stopped", number, f"told to stop by {signal_name(number)}", time.time())
