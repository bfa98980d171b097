"""Ends every process of a run at once: told first, then killed, and looked for until none is left."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dsforge.base import processes
from dsforge.base.processes import ProcessId
from dsforge.launch.far import Far
from dsforge.launch.runner import Runner
from dsforge.records import environment

GRACE_SECONDS = 4.5
"""For a rank to kill its trainer, to take its last output and to write how it ended."""
LAUNCHER_SECONDS = 2.5
"""For the launchers to notice that their ranks have ended; deepspeed looks once a second."""
RECALL_SECONDS = 35.0
"""For a runner to have what it started on a cluster deleted, and to see that it is."""
_KILL_SECONDS = 10.0
_TICK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Stopper:
    """What belongs to one attempt: its runner, its guard, which stays, and the mark of the run.

    `kept`: where the runner has ended, a scheduler has left nothing of the ranks. `recall`: the signal on
    which the runner takes back what it has handed to a cluster.
    """

    run_id: str
    runner: Runner
    guard_pid: int
    far: Far
    hurry: Callable[[], bool]
    kept: bool = False
    recall: int | None = None

    def stop(self, wrappers: Iterable[ProcessId]) -> None:
        """Tell the ranks to end, wait for them and for the launchers, then kill what is left."""
        self.far.ask(signal.SIGQUIT)
        told = [wrapper for wrapper in wrappers if not self.hurry() and _end_at_once(wrapper)]
        if told:
            self._wait(lambda: not any(map(processes.is_alive, told)), GRACE_SECONDS)
            self._wait(lambda: self.runner.return_code() is not None, LAUNCHER_SECONDS)
        self.kill()

    def finish(self, patience_seconds: float) -> None:
        """Wait for the launchers of ranks that have all ended, then kill what is left."""
        self._wait(lambda: self.runner.return_code() is not None, patience_seconds)
        self.kill()

    def kill(self) -> None:
        """SIGKILL every process that carries the run's mark until none is left, here and on other hosts."""
        self.far.end(lambda: self.kept and self.runner.return_code() is not None)
        if self.recall is not None:
            self._recall(self.recall)
        deadline = time.monotonic() + _KILL_SECONDS
        while left := self._left():
            for process in left:
                processes.send_signal(process, signal.SIGKILL)
            if time.monotonic() > deadline:
                return  # in an uninterruptible wait; the kernel ends it when the wait does
            time.sleep(_TICK_SECONDS)
        self._wait(lambda: self.runner.return_code() is not None, LAUNCHER_SECONDS)

    def _recall(self, number: int) -> None:
        """Have the runner take back what it started elsewhere; it has no mark, so that it lives to do it."""
        processes.send_signal(self.runner.identity, number)
        deadline = time.monotonic() + RECALL_SECONDS
        while self.runner.return_code() is None and time.monotonic() < deadline:
            time.sleep(_TICK_SECONDS)
        processes.send_signal(self.runner.identity, signal.SIGKILL)

    def _left(self) -> list[ProcessId]:
        marked = processes.carrying(environment.RUN_ID, self.run_id)
        return [process for process in marked if process.pid != self.guard_pid]

    def _wait(self, done: Callable[[], bool], patience_seconds: float) -> None:
        deadline = time.monotonic() + patience_seconds
        while not done() and time.monotonic() < deadline and not self.hurry():
            time.sleep(_TICK_SECONDS)


def _end_at_once(wrapper: ProcessId) -> bool:
    # SIGTERM would ask for a checkpoint.
    return processes.send_signal(wrapper, signal.SIGQUIT)
