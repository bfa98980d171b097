"""Shows a run as it goes: one live line on a terminal, a line a stage elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from dsforge.base.units import format_count, format_seconds
from dsforge.cli import output

if TYPE_CHECKING:
    from dsforge.launch.types import ProgressEvent
    from dsforge.records.streams import MetricsLine

_LINES_A_RUN = 10
_QUIET_STAGES = ("rank_up", "rank_ended")
"""Told one by one these would be thousands of lines on a large run."""


class Progress:
    """Call it with every ProgressEvent of a run of `steps` steps.

    `tells_end`: false where the command itself tells how the run ended. `told`: words for events, by name,
    in place of the run's own.
    """

    def __init__(
        self, steps: int, *, tells_end: bool = True, told: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._steps = steps
        self._tells_end = tells_end
        self._told = told
        self._live = sys.stderr.isatty()
        self._open_line = False
        self._pace: list[float] = []

    def __call__(self, event: ProgressEvent) -> None:
        """Show one event."""
        if event.name == "step" and event.metrics is not None:
            self._step(event.metrics)
        elif event.name == "ended" and not self._tells_end:
            self._close_line()
        elif event.name not in _QUIET_STAGES:
            self._stage(self._told.get(event.name, event.message))

    def _close_line(self) -> None:
        if self._open_line:
            output.note_raw("")
            self._open_line = False

    def _stage(self, text: str) -> None:
        self._close_line()
        output.note(f"{time.strftime('%H:%M:%S')} {text}")

    def _step(self, metrics: MetricsLine) -> None:
        text = f"step {metrics.step}/{self._steps}  loss {metrics.loss:.4f}"
        if metrics.step_seconds is not None and metrics.tokens_per_second is not None:
            self._pace = [*self._pace[-19:], metrics.step_seconds]
            left = (self._steps - metrics.step) * sum(self._pace) / len(self._pace)
            pace = format_count(metrics.tokens_per_second)
            text += f"  {pace} tokens/s  left {format_seconds(max(0.0, left))}"
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            output.live(text[:width].ljust(width))
            self._open_line = True
        elif metrics.step % max(1, self._steps // _LINES_A_RUN) == 0 or metrics.step == 1:
            self._stage(text)
