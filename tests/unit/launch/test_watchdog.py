"""The watchdog beside real processes, which are the ranks of this host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dsforge.base import processes
from dsforge.base.canonical import dump_line
from dsforge.base.files import append_line
from dsforge.launch import watchdog
from dsforge.launch.cause import Cause
from dsforge.launch.far import Far
from dsforge.launch.follow import Follower
from dsforge.launch.launchers import LAUNCHERS
from dsforge.launch.watchdog import Watchdog
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import Event, MetricsLine, WorldReport
from tests.launch_support.plans import make_plan

PATIENCE_SECONDS = 60.0


@dataclass
class Watched:
    """Two ranks that only sleep, and what is told of them."""

    attempt: AttemptDir
    ranks: list[subprocess.Popen[bytes]] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)

    def start(self, **limits: float) -> Watchdog:
        plan = make_plan(**limits)
        self.follower = Follower(plan, self.attempt)
        far = Far(self.follower, self.attempt, ("localhost",), LAUNCHERS["local"])
        self.attempt.path.mkdir()
        for rank in range(2):
            sleeps = "import time; print(flush=True); time.sleep(600)"
            process = subprocess.Popen([sys.executable, "-c", sleeps], stdout=subprocess.PIPE)
            self.ranks.append(process)
            assert process.stdout is not None
            process.stdout.readline()
            who = processes.identify(process.pid)
            assert who is not None
            pids = (who.pid, who.start, who.pid, who.start, processes.machine())
            self.write(self.attempt.rank_stream(0), WorldReport(time.time(), rank, rank, 2, "here", 0, *pids))
        self.write(self.attempt.events, Event(time.time(), "trainer", "joined", "", {}))
        made = Watchdog(plan, self.attempt, self.follower, far, lambda *words: self.told.append(words))
        self.follower.poll()
        return made

    def write(self, path: Path, line: Event | WorldReport | MetricsLine) -> None:
        append_line(path, dump_line(line.as_dict()))

    def until(self, made: Watchdog, name: str) -> Cause | None:
        """Look again and again until something of this name is told, or the attempt has a cause."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (cause := made.look()) is None and name not in [one for one, _ in self.told]:
            assert time.monotonic() < deadline
            self.follower.poll()
            time.sleep(0.05)
        return cause


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(AttemptDir(tmp_path / "attempt-1"))
    yield made
    for process in made.ranks:
        process.kill()
        process.communicate()


def test_ranks_are_asked_at_half_of_the_shorter_limit_and_what_they_said_holds_until_a_step(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watchdog, "_EARLY_SECONDS", 0.0)
    made = watched.start(watchdog_seconds=600.0, collective_timeout_seconds=1.0)
    os.kill(watched.ranks[1].pid, signal.SIGSTOP)
    assert watched.until(made, "slow") is None
    assert [name for name, _ in watched.told] == ["slow"]
    assert watched.told[0][1].startswith("no progress for ")
    assert made.words[0].startswith("rank 1 on host here is stopped by a signal (SIGSTOP)")
    watched.write(watched.attempt.metrics, MetricsLine(time.time(), 1, 4.0, None, None, None, 0.1, None))
    watched.follower.poll()
    assert made.words == ()


def test_a_limit_that_is_passed_ends_the_attempt_with_the_rank_to_blame(watched: Watched):
    made = watched.start(watchdog_seconds=0.2)
    os.kill(watched.ranks[1].pid, signal.SIGSTOP)
    cause = watched.until(made, "never")
    assert cause is not None
    assert (cause.code, cause.rank, cause.host) == (124, 1, "here")
    assert cause.message.startswith("no progress for launch.watchdog, 0.2 s; no step was made; hung: rank 1 ")
    assert [name for name, _ in watched.told] == ["inquiry"]


def test_slow_steps_are_asked_about_and_told_once(watched: Watched):
    made = watched.start()
    for step, seconds in enumerate([1.0] * 10 + [5.0] * 9 + [1.0] * 3):
        made.take(MetricsLine(time.time(), step, 4.0, None, None, None, seconds, None))
        if step == 14:
            assert watched.until(made, "slow") is None
    assert [name for name, _ in watched.told] == ["slow", "eased"]
    first, *more = watched.told[0][1].splitlines()
    assert first.startswith("steps take 5 s at step 12, and took 1 s before; rank 0 on host here hangs in ")
    assert more[0].startswith("  rank 1 on host here hangs in ")
    assert watched.told[1][1] == "steps take 1 s again, since step 21"
