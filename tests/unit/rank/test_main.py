"""The wrapper as a process of its own, without a launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from dsforge.base import lease, processes
from dsforge.base.processes import ProcessId
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import ExitRecord, Heartbeat, WorldReport, parse_line, read_lines
from tests.launch_support.bundles import REPOSITORY
from tests.support.memory import little_memory

PATIENCE_SECONDS = 60.0


def write_plan(folder, *, stop_timeout_seconds: float) -> None:
    plan = {
        "layout": {"world_size": 1, "gpus_per_node": 1},
        "launch": {"stop_timeout_seconds": stop_timeout_seconds},
    }
    (folder / "plan.json").write_text(json.dumps(plan))


@pytest.fixture
def group():
    yield from little_memory(96 * 2**20)


@pytest.fixture
def rank(tmp_path):
    """Start a wrapper around a trainer whose program is given."""
    started = []
    write_plan(tmp_path, stop_timeout_seconds=1.0)

    def start(program: str, *before: str, **environ: str):
        (tmp_path / "tiny_program.py").write_text(program)
        process = subprocess.Popen(
            [*before, sys.executable, "-m", "dsforge.rank.main", "tiny_program"],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY),
                "RANK": "0",
                "LOCAL_RANK": "0",
                "WORLD_SIZE": "1",
                "DSFORGE_PLAN": str(tmp_path / "plan.json"),
                "DSFORGE_ATTEMPT_DIR": str(tmp_path / "attempt-1"),
                **environ,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def lines(tmp_path):
    stream = AttemptDir(tmp_path / "attempt-1").rank_stream(0)
    return [parse_line(line) for _, line in read_lines(stream)]


def exit_record(tmp_path) -> ExitRecord:
    (record,) = [line for line in lines(tmp_path) if isinstance(line, ExitRecord)]
    return record


def until(ready) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def trainer_of(tmp_path) -> ProcessId:
    until(lambda: any(isinstance(line, WorldReport) for line in lines(tmp_path)))
    (report,) = [line for line in lines(tmp_path) if isinstance(line, WorldReport)]
    return ProcessId(report.trainer_pid, report.trainer_pid_start)


def test_success_is_recorded_and_shown_when_run_by_hand(rank, tmp_path):
    process = rank("print('hello')")
    shown, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, shown) == (0, "[rank 0] hello\n")
    record = exit_record(tmp_path)
    assert (record.code, record.cause, record.tail) == (0, "ok", ("hello",))
    (report,) = [line for line in lines(tmp_path) if isinstance(line, WorldReport)]
    assert report.pid == process.pid


def test_an_exception_is_recorded_with_the_time_of_its_traceback(rank, tmp_path):
    process = rank("import atexit, time\natexit.register(time.sleep, 1.5)\nraise SystemError('broken')")
    assert process.wait(PATIENCE_SECONDS) == 1
    record = exit_record(tmp_path)
    assert (record.code, record.cause, record.signal) == (1, "exception", None)
    assert record.tail[-1] == "SystemError: broken"
    assert record.time - record.failed_at > 1.0  # the clean-up came after the failure


def test_a_killed_trainer_gives_128_plus_the_signal(rank, tmp_path):
    process = rank("import os\nos.kill(os.getpid(), 9)")
    assert process.wait(PATIENCE_SECONDS) == 137
    record = exit_record(tmp_path)
    assert (record.code, record.cause, record.signal) == (137, "signal", 9)
    assert not record.oom_killed


def test_a_trainer_that_the_kernel_ends_for_want_of_memory_is_told_from_that(group, rank, tmp_path):
    enters = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
    process = rank("kept = bytearray(400 * 2**20)", *enters)
    assert process.wait(PATIENCE_SECONDS) == 137
    record = exit_record(tmp_path)
    assert (record.cause, record.signal, record.oom_killed) == ("signal", 9, True)


def test_the_users_devices_reach_the_trainer(rank, tmp_path):
    process = rank(
        "import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])",
        DSFORGE_VISIBLE_DEVICES="4,5",
        CUDA_VISIBLE_DEVICES="0,1",
    )
    shown, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert shown == "[rank 0] 4,5\n"


def test_a_wrong_world_starts_no_trainer(rank, tmp_path):
    process = rank("print('never')", WORLD_SIZE="2")
    shown, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 4
    assert "never" not in shown
    record = exit_record(tmp_path)
    assert record.cause == "world_mismatch"
    assert record.message == "the launcher started 2 ranks, the plan has 1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_trainer_and_its_workers(rank, tmp_path, number):
    program = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""
    process = rank(program, TINY_MARK=str(tmp_path))
    trainer = trainer_of(tmp_path)
    until(lambda: len(processes.carrying("TINY_MARK", str(tmp_path))) == 3)
    process.send_signal(number)
    assert process.wait(PATIENCE_SECONDS) == 128 + number
    assert not processes.is_alive(trainer)
    assert processes.carrying("TINY_MARK", str(tmp_path)) == []
    record = exit_record(tmp_path)
    assert (record.cause, record.signal) == ("stopped", number)
    # The trainer is deaf: it is killed when its time is over.
    assert record.message == f"told to stop by {number.name}; not done within launch.stop_timeout, 1 s"
    assert record.time - record.failed_at >= 1.0


_SAVES = """
import signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
print("ready")
while not asked:
    time.sleep(0.01)
time.sleep({seconds})
print("saved")
sys.exit({code})
"""


def until_ready(tmp_path) -> None:
    log = AttemptDir(tmp_path / "attempt-1").log(0)
    until(lambda: log.exists() and "ready" in log.read_text())


@pytest.mark.parametrize(
    ("code", "returned", "cause"), [(143, 143, "stopped"), (0, 143, "stopped"), (3, 3, "exception")]
)
def test_a_request_is_passed_on_and_its_answer_waited_for(rank, tmp_path, code, returned, cause):
    process = rank(_SAVES.format(seconds=0.5, code=code))
    until_ready(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == returned
    record = exit_record(tmp_path)
    # What failed to answer is no stop: a disk that is full at the last save must be told.
    assert (record.cause, record.tail) == (cause, ("ready", "saved"))
    assert record.stopped_on_request is (cause == "stopped")


def test_a_trainer_that_stops_with_another_rank_is_stopped_too(rank, tmp_path):
    process = rank("import sys\nsys.exit(143)")
    assert process.wait(PATIENCE_SECONDS) == 143
    record = exit_record(tmp_path)
    assert (record.cause, record.signal, record.stopped_on_request) == ("stopped", None, True)


@pytest.mark.parametrize(
    "numbers", [(signal.SIGQUIT,), (signal.SIGTERM, signal.SIGQUIT), (signal.SIGINT, signal.SIGINT)]
)
def test_some_signals_leave_no_time(rank, tmp_path, numbers):
    write_plan(tmp_path, stop_timeout_seconds=0.0)
    process = rank(_SAVES.format(seconds=600, code=143))
    until_ready(tmp_path)
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.1)  # two of a kind at once are one signal
    assert process.wait(PATIENCE_SECONDS) == 128 + numbers[-1]
    record = exit_record(tmp_path)
    assert (record.cause, record.signal, record.tail) == ("stopped", numbers[-1], ("ready",))
    assert not record.stopped_on_request


def test_a_lease_that_is_lost_during_a_stop_ends_it(rank, tmp_path):
    write_plan(tmp_path, stop_timeout_seconds=0.0)
    path = tmp_path / "lease"
    with lease.hold(path):
        process = rank(_SAVES.format(seconds=600, code=143), DSFORGE_LEASE=str(path))
        until_ready(tmp_path)
        process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 143
    assert exit_record(tmp_path).cause == "lease_lost"


def test_a_trainer_that_ends_itself_after_sigterm_still_counts_as_stopped(rank, tmp_path):
    process = rank("import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(0))\ntime.sleep(600)")
    trainer_of(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 143
    assert exit_record(tmp_path).cause == "stopped"


def test_a_killed_wrapper_takes_its_trainer_along(rank, tmp_path):
    process = rank("import time\ntime.sleep(600)")
    trainer = trainer_of(tmp_path)
    process.kill()
    process.wait()
    until(lambda: not processes.is_alive(trainer))


def test_a_lost_lease_ends_the_rank(rank, tmp_path):
    path = tmp_path / "lease"
    with lease.hold(path):
        process = rank("import time\ntime.sleep(600)", DSFORGE_LEASE=str(path))
        trainer_of(tmp_path)
        until(lambda: any(isinstance(line, Heartbeat) for line in lines(tmp_path)))
        assert process.poll() is None
    assert process.wait(PATIENCE_SECONDS) == 143
    assert exit_record(tmp_path).cause == "lease_lost"


def test_a_dead_parent_ends_the_rank(rank, tmp_path):
    # A shell in between is the parent that dies.
    program = "import time\ntime.sleep(600)"
    (tmp_path / "tiny_program.py").write_text(program)
    shell = subprocess.Popen(
        ["bash", "-c", f"{sys.executable} -m dsforge.rank.main tiny_program & wait"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
            "DSFORGE_PLAN": str(tmp_path / "plan.json"),
            "DSFORGE_ATTEMPT_DIR": str(tmp_path / "attempt-1"),
        },
    )
    trainer = trainer_of(tmp_path)
    shell.kill()
    shell.wait()
    until(lambda: any(isinstance(line, ExitRecord) for line in lines(tmp_path)))
    assert exit_record(tmp_path).cause == "parent_died"
    until(lambda: not processes.is_alive(trainer))
