"""The ranks of a node, and its guard, where the supervisor is on another host."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from dsforge.base import processes
from dsforge.base.processes import ProcessId
from dsforge.records.streams import ExitRecord, WorldReport, parse_line, read_lines


class Neighbours:
    """The ranks of a node, by the stream that they share."""

    def __init__(self, stream: Path) -> None:
        self._stream = stream
        self._offset = 0
        self._wrappers: dict[int, ProcessId] = {}

    def gone(self) -> tuple[int, ...]:
        """Return the ranks whose wrapper has ended without an exit record."""
        # Asked before the stream is read: what a wrapper wrote before it ended is then among the lines.
        gone = {rank for rank, wrapper in self._wrappers.items() if not processes.is_alive(wrapper)}
        with contextlib.suppress(OSError):
            self._read()
        return tuple(sorted(gone & self._wrappers.keys()))

    def _read(self) -> None:
        for offset, data in read_lines(self._stream, self._offset):
            self._offset = offset
            match parse_line(data):
                case WorldReport(rank=rank, pid=pid, pid_start=start):
                    self._wrappers[rank] = ProcessId(pid, start)
                case ExitRecord(rank=rank):
                    self._wrappers.pop(rank, None)


def start_guard(node: int, folder: Path) -> None:
    """Start this host's guard in a session of its own, which outlives every rank; OSError."""
    subprocess.Popen(
        [sys.executable, "-m", "dsforge.rank.guard", str(node)],
        env=dict(os.environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
