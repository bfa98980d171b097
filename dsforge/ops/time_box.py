"""A limit of time that ends the run in progress, as `dsforge runs stop --now` would."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

_AGAIN_SECONDS = 5.0
"""A run that was about to start when the time was up is told again."""


class TimeBox:
    """While it is entered, a run supervised here ends at once when the time is up.

    To be entered in the main thread, which signals are for.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._left = threading.Event()
        self._previous: Any = None

    @property
    def is_over(self) -> bool:
        """Tell whether the time is up."""
        return time.monotonic() >= self._end

    def __enter__(self) -> Self:
        # A supervisor puts its own handler over this one, by which nothing ends between two runs.
        self._previous = signal.signal(signal.SIGQUIT, self._ignore)
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        signal.signal(signal.SIGQUIT, self._previous)

    def _watch(self) -> None:
        wait = max(0.0, self._end - time.monotonic())
        while not self._left.wait(wait):
            os.kill(os.getpid(), signal.SIGQUIT)
            wait = _AGAIN_SECONDS

    @staticmethod
    def _ignore(_number: int, _frame: FrameType | None) -> None:
        pass
