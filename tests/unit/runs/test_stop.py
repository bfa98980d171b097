from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dsforge.base import processes
from dsforge.base.errors import DsforgeError
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunExit, read_state
from dsforge.records.streams import WorldReport
from dsforge.runs.stop import stop_run
from tests.launch_support.run_folders import NOBODY, make_run, write_lines

_SLEEP = "import signal, sys, time; {setup}; print(); sys.stdout.flush(); time.sleep(600)"


HOLD = "import fcntl; held = open('{path}', 'w'); fcntl.flock(held, fcntl.LOCK_EX)"


def sleeper(run_id: str, setup: str = "pass", folder: Path | None = None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SLEEP.format(setup=setup)],
        stdout=subprocess.PIPE,
        env={**os.environ, "DSFORGE_RUN_ID": run_id, "DSFORGE_ATTEMPT_DIR": str(folder or "/nowhere")},
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


@pytest.mark.parametrize(("at_once", "number"), [(False, 15), (True, 3)])
def test_a_live_supervisor_is_asked(tmp_path, at_once, number):
    run_dir = make_run(tmp_path, "a")
    supervisor = sleeper("not this run", HOLD.format(path=run_dir.lease))
    make_run(tmp_path, "a", supervisor=processes.identify(supervisor.pid))
    result = stop_run(run_dir, at_once=at_once)
    assert (result.how, result.message) == ("supervisor", "the run was stopped")
    supervisor.communicate()
    assert supervisor.returncode == -number


def test_the_time_for_a_checkpoint_is_given_and_what_came_of_it_told(tmp_path, monkeypatch):
    monkeypatch.setattr("dsforge.runs.stop.SUPERVISOR_SECONDS", 0.0)
    run_dir = make_run(tmp_path, "a")
    slow = "import signal, sys, time; signal.signal(15, lambda *_: (time.sleep(1.5), sys.exit(0))); "
    supervisor = sleeper("not this run", slow + HOLD.format(path=run_dir.lease))
    make_run(
        tmp_path,
        "a",
        supervisor=processes.identify(supervisor.pid),
        exit=RunExit(143, "terminated", "stopped by SIGTERM; the checkpoint of step 4 is /kept/step-4"),
    )
    run_dir.bundle.mkdir()
    (run_dir.bundle / "plan.json").write_text('{"launch": {"stop_timeout_seconds": 60.0}}')
    assert stop_run(run_dir).message == "stopped by SIGTERM; the checkpoint of step 4 is /kept/step-4"
    supervisor.communicate()
    assert supervisor.returncode == 0


def test_a_process_that_only_a_file_calls_the_supervisor_is_left_alone(tmp_path):
    run_dir = make_run(tmp_path, "a")
    stranger, holder = sleeper("not this run"), sleeper("not this run", HOLD.format(path=run_dir.lease))
    try:
        make_run(tmp_path, "a", supervisor=processes.identify(stranger.pid))
        with pytest.raises(DsforgeError, match=f"it is not pid {stranger.pid}") as caught:
            stop_run(run_dir)
        assert (caught.value.code, caught.value.exit_code) == ("DSF225", 3)
        holder.kill()
        holder.wait()
        assert stop_run(run_dir).how == "ranks"
        assert stranger.poll() is None
    finally:
        for process in (stranger, holder):
            process.kill()
            process.communicate()


def test_a_copy_of_a_run_stops_nothing_of_the_original(tmp_path):
    run_id = f"copied-{os.getpid()}"
    original = make_run(tmp_path / "runs", run_id)
    holder = sleeper("not this run", HOLD.format(path=original.lease))
    rank = sleeper(run_id, folder=original.attempt(1).path)
    try:
        make_run(tmp_path / "runs", run_id, supervisor=processes.identify(holder.pid))
        write_lines(original.attempt(1).rank_stream(0), report_of(rank))
        copy = RunDir(shutil.copytree(original.path, tmp_path / "copy" / run_id))
        assert stop_run(copy).message == "the supervisor was dead; 0 processes of the run were ended"
        assert (holder.poll(), rank.poll()) == (None, None)
    finally:
        for process in (holder, rank):
            process.kill()
            process.communicate()


def test_without_a_supervisor_the_ranks_are_ended_and_nobody_else(tmp_path):
    run_id = f"run-{os.getpid()}"
    run_dir = make_run(tmp_path, run_id, supervisor=NOBODY)
    folder = run_dir.attempt(1).path
    polite = sleeper(run_id, folder=folder)
    deaf = sleeper(run_id, "signal.signal(15, signal.SIG_IGN)", folder=folder)
    stranger = sleeper("another run", folder=folder)
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
