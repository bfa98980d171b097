from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dsforge.base import processes
from dsforge.base.errors import DsforgeError
from dsforge.records.run_state import read_state
from dsforge.records.streams import WorldReport
from dsforge.runs.stop import stop_run
from tests.launch_support.run_folders import NOBODY, make_run, write_lines

_SLEEP = "import signal, sys, time; {setup}; print(); sys.stdout.flush(); time.sleep(600)"


def sleeper(run_id: str, setup: str = "pass") -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SLEEP.format(setup=setup)],
        stdout=subprocess.PIPE,
        env={**os.environ, "DSFORGE_RUN_ID": run_id},
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def report_of(process: subprocess.Popen[bytes], rank: int = 0) -> WorldReport:
    identity = processes.identify(process.pid)
    assert identity is not None
    return WorldReport(1.0, rank, rank, 1, "h", 0, identity.pid, identity.start, identity.pid, identity.start)


def test_an_ended_run_is_left_alone(tmp_path):
    result = stop_run(make_run(tmp_path, "a", state="succeeded"))
    assert result.how == "already_ended"


def test_a_run_of_another_machine_is_refused(tmp_path):
    with pytest.raises(DsforgeError, match="another machine") as caught:
        stop_run(make_run(tmp_path, "a", host="elsewhere"))
    assert caught.value.exit_code == 3


def test_a_live_supervisor_is_asked(tmp_path):
    supervisor = sleeper("not this run")
    run_dir = make_run(tmp_path, "a", supervisor=processes.identify(supervisor.pid))
    assert stop_run(run_dir).how == "supervisor"
    supervisor.communicate()
    assert supervisor.returncode == -15


def test_without_a_supervisor_the_ranks_are_ended_and_nobody_else(tmp_path):
    run_id = f"run-{os.getpid()}"
    run_dir = make_run(tmp_path, run_id, supervisor=NOBODY)
    polite = sleeper(run_id)
    deaf = sleeper(run_id, "signal.signal(15, signal.SIG_IGN)")
    stranger = sleeper("another run")
    try:
        # The stranger's id stands in the stream as a reused id would: it does not carry the run's mark.
        write_lines(run_dir.attempt(1).rank_stream(0), report_of(polite, 0), report_of(stranger, 1))
        result = stop_run(run_dir)
        assert result.how == "ranks"
        assert "2 processes" in result.message
        assert (polite.wait(), deaf.wait()) == (-15, -9)
        assert stranger.poll() is None
    finally:
        for process in (polite, deaf, stranger):
            process.kill()
            process.communicate()
    state = read_state(run_dir.state)
    assert state is not None
    assert state.exit is not None
    assert (state.state, state.exit.kind, state.exit.code) == ("stopped", "terminated", 143)
