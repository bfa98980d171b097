"""How long steps take: tells when they begin to take much longer than before, and when no more. Pure."""

from __future__ import annotations

from collections import deque
from statistics import median

FACTOR = 3.0
"""By which steps are slow: less is what data, a shared network or a clock of a processor do."""
_EASED_FACTOR = 1.5
_LEAST_SECONDS = 1.0
"""Shorter steps than this vary by themselves."""
_STEPS = 20
"""The usual time is the median of so many steps; the fewest that show one are half of it."""
_IN_A_ROW = 3


class Pace:
    """The time of steps, one after the other."""

    def __init__(self) -> None:
        self.is_slow = False
        self._usual: deque[float] = deque(maxlen=_STEPS)
        self._in_a_row = 0

    @property
    def usual_seconds(self) -> float | None:
        """What a step usually takes, None while too few have been made."""
        return median(self._usual) if len(self._usual) >= _STEPS // 2 else None

    def take(self, step_seconds: float) -> bool:
        """Take the time of a step; tell whether by it the run became slow, or is no longer.

        Slow steps do not count for what is usual.
        """
        usual = self.usual_seconds
        if usual is None:
            self._usual.append(step_seconds)
            return False
        slow_seconds = max(usual * FACTOR, _LEAST_SECONDS)
        eased_seconds = max(usual * _EASED_FACTOR, _LEAST_SECONDS)
        changes = step_seconds < eased_seconds if self.is_slow else step_seconds > slow_seconds
        if not changes:
            self._in_a_row = 0
            if not self.is_slow:
                self._usual.append(step_seconds)
            return False
        self._in_a_row += 1
        if self._in_a_row < _IN_A_ROW:
            return False
        self._in_a_row = 0
        self.is_slow = not self.is_slow
        return True
