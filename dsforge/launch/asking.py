"""Asks the ranks of one attempt to stop after a checkpoint, and knows for how long to wait for them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from dsforge.base import processes
from dsforge.base.processes import ProcessId

_RANKS_MARGIN_SECONDS = 10.0
"""Ranks keep to the same limit and say so: they are given the time for it."""
_STRAGGLER_SECONDS = 15.0
"""From the first rank's end to the last one's: they stop after the same step, and it is saved."""


class Asking:
    """A request to stop on its way to the ranks; `begun` once there is one."""

    def __init__(self, timeout_seconds: float) -> None:
        """Take `launch.stop_timeout`; 0 for no limit."""
        self.timeout_seconds = timeout_seconds
        self._asked: set[ProcessId] = set()
        self._begun_at: float | None = None
        self._first_end: float | None = None

    @property
    def begun(self) -> bool:
        """Tell whether somebody was asked."""
        return self._begun_at is not None

    def begin(self) -> None:
        """Start the clock."""
        self._begun_at = time.monotonic()

    def pass_on(self, wrappers: Iterable[ProcessId]) -> None:
        """Ask those that were not asked yet."""
        for wrapper in wrappers:
            if wrapper not in self._asked:
                self._asked.add(wrapper)
                processes.send_signal(wrapper, signal.SIGTERM)

    def is_over(self, *, some_ended: bool, all_ended: bool) -> bool:
        """Tell whether there is nothing more to wait for: every rank has ended, or time is up."""
        assert self._begun_at is not None, "begun before"
        now = time.monotonic()
        if some_ended and self._first_end is None:
            self._first_end = now
        straggling = self._first_end is not None and now - self._first_end > _STRAGGLER_SECONDS
        return all_ended or straggling or self._past(self.timeout_seconds + _RANKS_MARGIN_SECONDS)

    @property
    def is_late(self) -> bool:
        """Tell whether the time that the plan has for a stop has passed."""
        return self._past(self.timeout_seconds)

    def _past(self, seconds: float) -> bool:
        has_limit = self._begun_at is not None and self.timeout_seconds > 0
        return has_limit and time.monotonic() - (self._begun_at or 0.0) > seconds
