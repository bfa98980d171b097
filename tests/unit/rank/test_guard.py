"""The guard as a process of its own, beside a supervisor that dies."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from dsforge.base import lease, processes
from dsforge.rank import guard
from tests.launch_support.bundles import REPOSITORY

PATIENCE_SECONDS = 60.0
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"


def start(program: list[str], folder, **environ: str) -> subprocess.Popen[bytes]:
    variables = {"DSFORGE_ATTEMPT_DIR": str(folder), "DSFORGE_LEASE": str(folder / "lease")}
    return subprocess.Popen(
        [sys.executable, *program],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **variables, **environ},
        stdout=subprocess.PIPE,
    )


def test_everything_of_the_attempt_ends_with_its_lease_and_nothing_else(tmp_path):
    mine, other = tmp_path / "attempt-1", tmp_path / "attempt-10"
    for folder in (mine, other):
        folder.mkdir()
    started = [start(["-c", DEAF], folder) for folder in (mine, mine, other)]
    try:
        for process in started:
            process.stdout.readline()
        (mine / "secrets-0").write_text("TOKEN=x")
        with lease.hold(mine / "lease"):
            watching = start(["-m", "dsforge.rank.guard"], mine)
            time.sleep(3 * guard.LEASE_CHECK_SECONDS)
            assert [process.poll() for process in (*started, watching)] == [None] * 4
        assert watching.wait(PATIENCE_SECONDS) == 0
        assert not (mine / "secrets-0").exists()
        assert [process.wait(PATIENCE_SECONDS) for process in started[:2]] == [-9, -9]
        assert started[2].poll() is None
        assert len(processes.carrying("DSFORGE_ATTEMPT_DIR", str(other))) == 1
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_ranks_are_given_time_to_say_why_they_end(tmp_path):
    says = "import time, pathlib; print(flush=True); time.sleep(2); pathlib.Path('said').touch()"
    rank = subprocess.Popen(
        [sys.executable, "-c", says],
        cwd=tmp_path,
        env={**os.environ, "DSFORGE_ATTEMPT_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    rank.stdout.readline()
    (tmp_path / "ranks-0.jsonl").touch()
    watching = start(["-m", "dsforge.rank.guard"], tmp_path)
    assert watching.wait(PATIENCE_SECONDS) == 0
    assert rank.wait() == 0
    assert (tmp_path / "said").exists()
