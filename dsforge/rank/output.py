"""Takes the trainer's output to the node's log, each line marked with its rank."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from dsforge.base.files import append_line
from dsforge.base.text import without_escapes

TAIL_LINES = 40
"""Lines kept for the exit record."""
_LONGEST_LINE_BYTES = 65_536
_LONGEST_TAIL_LINE = 2_000
_FAILURES = ("Traceback (most recent call last)", "error[DSF")
"""How a failure begins: Python's way, and that of what the trainer itself refuses to go on with."""


class OutputPump:
    """Reads a pipe until all writers closed it. A full disk loses lines, it never stops the trainer."""

    def __init__(
        self,
        pipe: int,
        log: Path,
        rank: int,
        *,
        echo: bool,
        reader: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.failure_time: float | None = None
        self._pipe = pipe
        self._log = log
        self._mark = f"[rank {rank}] "
        self._echo = echo
        self._reader = reader
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        """Begin to read in a thread of its own."""
        self._thread.start()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the end of the output; a writer that never closes is given up on."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        waiting = b""
        while chunk := os.read(self._pipe, _LONGEST_LINE_BYTES):
            *lines, waiting = (waiting + chunk).split(b"\n")
            if len(waiting) > _LONGEST_LINE_BYTES:
                lines.append(waiting)
                waiting = b""
            self._write(lines)
        if waiting:
            self._write([waiting])
        os.close(self._pipe)

    def _write(self, raw_lines: list[bytes]) -> None:
        # A progress bar redraws its line with carriage returns: its last state is the line.
        lines = [raw.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2] for raw in raw_lines]
        if not lines:
            return
        if any(mark in line for line in lines for mark in _FAILURES):
            self.failure_time = time.time()
        if self._reader is not None:
            self._reader(lines)
        self.tail.extend(without_escapes(line)[:_LONGEST_TAIL_LINE] for line in lines)
        text = "".join(f"{self._mark}{line}\n" for line in lines)
        with contextlib.suppress(OSError):
            append_line(self._log, text)
        if self._echo:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.write(text)
                sys.stdout.flush()
