"""The ranks of a node, and its guard, where the supervisor is on another host."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from dsforge.base import oom, processes
from dsforge.base.oom import OomWatch
from dsforge.base.processes import ProcessId
from dsforge.records.streams import ExitRecord, WorldReport, parse_line, read_lines


class Neighbours:
    """The ranks of a node, by the stream that they share."""

    def __init__(self, stream: Path) -> None:
        self._stream = stream
        self._offset = 0
        self._wrappers: dict[int, ProcessId] = {}
        self.trainers: dict[int, ProcessId] = {}
        """Those of ranks that have not ended."""
        self._alive: dict[int, float] = {}
        self._memory: dict[int, OomWatch] = {}
        self._told: set[int] = set()

    def newly_gone(self) -> dict[int, float]:
        """Return when each rank was last seen alive whose wrapper has since ended without an exit record."""
        # Asked before the stream is read: what a wrapper wrote before it ended is then among the lines.
        now = time.time()
        alive = {rank for rank, wrapper in self._wrappers.items() if processes.is_alive(wrapper)}
        gone = self._wrappers.keys() - alive - self._told
        self._alive |= dict.fromkeys(alive, now)
        with contextlib.suppress(OSError):
            self._read()
        gone &= self._wrappers.keys()
        self._told |= gone
        return {rank: self._alive[rank] for rank in sorted(gone)}

    def is_oom_killed(self, rank: int) -> bool:
        """Tell whether the kernel has ended a process around a rank for want of memory."""
        return self._memory[rank].has_killed()

    def _read(self) -> None:
        for offset, data in read_lines(self._stream, self._offset):
            self._offset = offset
            match parse_line(data):
                case WorldReport(time=reported, rank=rank, pid=pid, pid_start=start) as report:
                    self.trainers[rank] = ProcessId(report.trainer_pid, report.trainer_pid_start)
                    self._alive[rank] = reported
                    self._wrappers[rank] = ProcessId(pid, start)
                    self._memory[rank] = oom.watch(pid)
                case ExitRecord(rank=rank):
                    self._wrappers.pop(rank, None)
                    self.trainers.pop(rank, None)


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
