"""The agent of a host: what it starts, and that it ends when who started it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from dsforge.base import processes
from dsforge.rank.agent import READY, Job
from tests.launch_support.bundles import REPOSITORY

PATIENCE_SECONDS = 60.0


def start(line: str) -> subprocess.Popen[str]:
    agent = subprocess.Popen(
        [sys.executable, "-m", "dsforge.rank.agent"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert agent.stdin is not None
    agent.stdin.write(line)
    agent.stdin.flush()
    return agent


def test_a_job_gets_its_folder_its_variables_and_its_code_back(tmp_path: Path):
    program = "import os, sys; print(os.getcwd(), repr(os.environ['ODD'])); sys.exit(7)"
    odd = "two\nlines $HOME 'x'"
    job = Job((sys.executable, "-c", program), {"ODD": odd}, str(tmp_path))
    with start(job.to_line()) as agent:
        assert agent.stdout is not None
        lines = agent.stdout.read().splitlines()
        assert agent.wait(PATIENCE_SECONDS) == 7
    assert sorted(lines) == sorted([READY, f"{tmp_path} {odd!r}"])


def test_the_end_of_stdin_ends_the_job_and_what_it_left(tmp_path: Path):
    child = "import subprocess, sys; subprocess.Popen(['sleep', '600']); print(flush=True); input()"
    environ = {"DSFORGE_ATTEMPT_DIR": str(tmp_path)}
    with start(Job((sys.executable, "-c", child), environ, str(tmp_path)).to_line()) as agent:
        assert agent.stdout is not None
        assert agent.stdin is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not [one for one in processes.carrying("DSFORGE_ATTEMPT_DIR", str(tmp_path)) if _sleeps(one)]:
            assert time.monotonic() < deadline
        agent.stdin.close()
        assert agent.wait(PATIENCE_SECONDS) == 143
    assert processes.carrying("DSFORGE_ATTEMPT_DIR", str(tmp_path)) == []


def _sleeps(process: processes.ProcessId) -> bool:
    return processes.command_of(process.pid).startswith("sleep")


def test_what_cannot_be_started_is_told_without_a_traceback(tmp_path: Path):
    for line in ("\n", "[]\n", Job(("true",), {}, str(tmp_path / "none")).to_line()):
        with start(line) as agent:
            assert agent.stderr is not None
            said = agent.stderr.read()
            assert agent.wait(PATIENCE_SECONDS) == 3
        assert said.startswith("dsforge: this host cannot start its ranks: ")
        assert said.count("\n") == 1
