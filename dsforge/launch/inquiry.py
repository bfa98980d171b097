"""Asks all ranks of an attempt where they are, on every host at once, for a bounded time."""

from __future__ import annotations

import contextlib
import time

from dsforge.base.files import write_atomically
from dsforge.base.processes import ProcessId
from dsforge.launch.far import Far
from dsforge.launch.follow import Follower
from dsforge.launch.lag import Verdict, judge
from dsforge.rank.stacks import answer_later
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import WorldReport

PATIENCE_SECONDS = 15.0
"""For two looks by the slowest tool on the farthest host, through a file system that is late."""


class Inquiry:
    """One question to the ranks that live: begun when it is made, over when all answered or time is up."""

    def __init__(self, attempt: AttemptDir, follower: Follower, far: Far, *, on_gpus: bool) -> None:
        self._follower = follower
        self._on_gpus = on_gpus
        self._asked = [one for one in follower.reports.values() if one.rank not in follower.exits]
        self._number = follower.begin_inquiry()
        self._deadline = time.monotonic() + PATIENCE_SECONDS
        near: dict[int, list[WorldReport]] = {}
        for report in self._asked:
            if not far.is_far(report):
                near.setdefault(report.node, []).append(report)
        if far.nodes:
            with contextlib.suppress(OSError):  # who is not asked does not answer
                write_atomically(attempt.stack_request, str(self._number))
        for node, reports in near.items():
            trainers = {one.rank: ProcessId(one.trainer_pid, one.trainer_pid_start) for one in reports}
            answer_later(attempt, node, trainers, self._number)

    def verdict(self) -> Verdict | None:
        """Return what the answers say, None while there is something to wait for."""
        samples = self._follower.samples
        answered = {sample.rank for sample in samples if sample.is_last}
        missing = [
            one.rank
            for one in self._asked
            if one.rank not in answered and one.rank not in self._follower.exits
        ]
        if missing and time.monotonic() < self._deadline:
            return None
        hosts = {one.rank: one.host for one in self._asked}
        return judge(samples, hosts, on_gpus=self._on_gpus)
