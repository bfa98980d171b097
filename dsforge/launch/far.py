"""The hosts of an attempt that the supervisor cannot look into: known by what they write, told by a file."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

from dsforge.base.files import write_atomically
from dsforge.base.processes import machine
from dsforge.base.text import without_escapes
from dsforge.launch.cause import LostHost
from dsforge.launch.follow import Follower
from dsforge.launch.launchers.base import Launcher
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import WorldReport

SILENT_SECONDS = 25.0
"""Without a sign of life for so long a host is gone: it gives one every 5 s, and may be slow at it."""
CLEAN_SECONDS = 12.0
"""For every host's guard to give the ranks time for their last words and to end what is left."""
_LOOK_SECONDS = 1.0


class Far:
    """What is known of ranks on other hosts, beyond what they recorded."""

    def __init__(
        self, follower: Follower, attempt: AttemptDir, hosts: tuple[str, ...], launcher: Launcher
    ) -> None:
        """Take the hosts by node, and the launcher, whose log tells of lost hosts and killed ranks."""
        self._follower = follower
        self._attempt = attempt
        self._hosts = hosts
        self._launcher = launcher
        self._log_offset = 0
        self._next_look = 0.0
        self._signs: dict[int, tuple[tuple[int, int], float, float]] = {}
        self.lost_nodes: dict[int, LostHost] = {}
        self._asked: int | None = None
        self._is_over = False

    def is_far(self, report: WorldReport) -> bool:
        """Tell whether a rank's processes are another host's."""
        return report.machine not in ("", machine())

    @property
    def nodes(self) -> set[int]:
        """The nodes on other hosts whose ranks have reported."""
        return {report.node for report in self._follower.reports.values() if self.is_far(report)}

    def gone(self) -> dict[int, float]:
        """Return the ranks on other hosts that are gone, and when they were last known to live."""
        self._look()
        gone = {}
        for rank, report in self._follower.reports.items():
            if not self.is_far(report):
                continue
            if report.node in self.lost_nodes:
                gone[rank] = self._last_sign(report)
            elif rank in self._follower.gone:
                gone[rank] = self._follower.gone[rank]
        return gone

    def ask(self, number: int) -> None:
        """Tell all ranks what a signal would tell them; told at once, a guard ends what is left."""
        if self._asked != number and self.nodes:
            self._asked = number
            with contextlib.suppress(OSError):  # their lease ends them then
                write_atomically(self._attempt.stop_request, str(int(number)))

    def end(self, is_over: Callable[[], bool]) -> None:
        """Have everything on the other hosts ended at once, and wait for their guards to say that it is.

        `is_over`: tells whether the launcher says so of all of them.
        """
        if self._is_over:
            return
        self._is_over = True
        self.ask(signal.SIGQUIT)
        deadline = time.monotonic() + CLEAN_SECONDS
        while self.nodes - self._follower.clean_nodes and not is_over():
            if time.monotonic() > deadline:
                return
            time.sleep(0.1)
            self._follower.poll_hosts()

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        self._read_log()
        for node in self.nodes:
            self._look_at(node, now)

    def _look_at(self, node: int, now: float) -> None:
        try:
            there = self._attempt.rank_stream(node).stat()
        except OSError:
            return
        sign = (there.st_size, there.st_mtime_ns)
        known = self._signs.get(node)
        if known is None or known[0] != sign:
            self._signs[node] = (sign, now, time.time())
        elif now - known[1] > SILENT_SECONDS and not self._has_ended(node):
            self._lose(node, f"gave no sign of life for {SILENT_SECONDS:g} s")

    def _lose(self, node: int, what: str) -> None:
        self.lost_nodes.setdefault(node, LostHost(self._hosts[node], what))

    def _has_ended(self, node: int) -> bool:
        ranks = [rank for rank, report in self._follower.reports.items() if report.node == node]
        return bool(ranks) and all(rank in self._follower.exits for rank in ranks)

    def _read_log(self) -> None:
        lost, killed = self._launcher.lost, self._launcher.killed
        for line in self._new_lines(self._attempt.launcher_log) if lost or killed else ():
            if lost and (match := lost.search(line)) and match["host"] in self._hosts:
                node = self._hosts.index(match["host"])
                if not self._has_ended(node):
                    self._lose(node, "lost its connection to the launcher")
            for rank in killed(line) if killed else ():
                self._miss(rank)

    def _miss(self, rank: int) -> None:
        report = self._follower.reports.get(rank)
        if report is not None and self.is_far(report):
            self._follower.gone.setdefault(rank, self._last_sign(report))

    def _last_sign(self, report: WorldReport) -> float:
        return self._signs[report.node][2] if report.node in self._signs else report.time

    def _new_lines(self, path: Path) -> list[str]:
        try:
            with path.open("rb") as stream:
                stream.seek(self._log_offset)
                whole, newline, _ = stream.read().rpartition(b"\n")
        except OSError:
            return []
        self._log_offset += len(whole) + len(newline)
        return without_escapes(whole.decode("utf-8", "replace")).splitlines()
