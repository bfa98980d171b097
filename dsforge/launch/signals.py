"""Signals to dsforge while it supervises: to stop after a checkpoint, or at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_TICK_SECONDS = 0.2
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class StopSignals:
    """Collects what asks for an end while it is entered; outside the main thread it collects none.

    `first` is the signal that the end is put down to. `at_once`: SIGQUIT, or a SIGINT after
    another signal. Another SIGTERM changes nothing: schedulers repeat it.
    """

    def __init__(self, notice: int | None = None) -> None:
        """Collect `notice` too, by which a scheduler announces the end of the job's time."""
        self._numbers = (*_NUMBERS, *((notice,) if notice is not None else ()))
        self.first: int | None = None
        self.at_once = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                    continue  # nohup: the user wants the run to outlive the terminal
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def wait(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Wait, and return whether nobody has asked for an end; at once when somebody does."""
        end = clock() + seconds
        while self.first is None and (left := end - clock()) > 0:
            sleep(min(left, _TICK_SECONDS))
        return self.first is None

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        again = self.first is not None
        self.at_once = self.at_once or number == signal.SIGQUIT or (again and number == signal.SIGINT)
        if self.first is None:
            self.first = number
