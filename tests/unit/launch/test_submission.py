"""What a run's folder says, whatever comes while its job is submitted, with programs in place of PBS's."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsforge.base import batch
from dsforge.base.errors import DsforgeError
from dsforge.launch import job
from dsforge.launch.submit import submit_run
from dsforge.launch.types import LaunchRequest
from dsforge.plan.resolve import make_plan
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunState, read_state
from dsforge.render.bundle import render
from dsforge.runs.stop import stop_run
from tests.support.recipes import loaded

JOB = "12.server"
Submit = Callable[[str], RunDir]


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Submit]:
    """Return a function that submits a run with a secret to a qsub of these lines of sh."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    for name in ("ssh", "qsub", "qstat", "qsig", "qdel"):
        (programs / name).write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/{name}.called\n')
        (programs / name).chmod(0o755)
    # Started under nohup, the tests would ignore it, and so would what they submit.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    plan = make_plan(
        loaded({"cluster": {"gpus_per_node": 8}, "launch": {"launcher": "pbs", "env_from": ["HF_TOKEN"]}})
    )
    environ = {"PATH": f"{programs}:/usr/bin:/bin", "HF_TOKEN": "s3cret", "HOME": str(tmp_path)}
    request = LaunchRequest(plan, render(plan), tmp_path / "runs", tmp_path, "a.yaml", "", (), environ)

    def run(lines: str) -> RunDir:
        (programs / "qsub").write_text(f"#!/bin/sh\n{lines}\n")
        return submit_run(request, lambda _: None)

    yield run
    signal.signal(signal.SIGHUP, before)


def left(folder: Path) -> tuple[RunDir, RunState]:
    (path,) = (folder / "runs").iterdir()
    state = read_state(RunDir(path).state)
    assert state is not None
    return RunDir(path), state


def start_job(run_dir: RunDir, root: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the code of the job's first process, started as PBS would."""
    for name, text in {"PBS_JOBID": JOB, "DSFORGE_RUN": str(run_dir.path), "DSFORGE_ROOT": str(root)}.items():
        monkeypatch.setenv(name, text)
    return job.main()


def test_a_job_that_is_taken_is_written_down_and_its_secrets_wait(submit: Submit, tmp_path: Path):
    run_dir = submit(f"echo {JOB}")
    assert run_dir.job_file("pbs").read_text() == f"{JOB}\n"
    assert run_dir.job_secrets.read_bytes() == b"HF_TOKEN=s3cret\0"
    state = left(tmp_path)[1]
    assert (state.state, state.trainer) == ("queued", "forge")


@pytest.mark.parametrize(("word", "code"), [("INT", 130), ("TERM", 143), ("HUP", 143)])
def test_a_signal_waits_for_the_job_and_cancels_it(submit: Submit, tmp_path: Path, word: str, code: int):
    with pytest.raises(DsforgeError) as caught:
        submit(f"kill -{word} $PPID; sleep 0.2; echo {JOB}")
    assert (caught.value.code, caught.value.exit_code) == ("DSF247", code)
    assert (tmp_path / "qdel.called").read_text() == f"{JOB}\n"
    run_dir, state = left(tmp_path)
    assert run_dir.job_file("pbs").read_text() == f"{JOB}\n"
    assert not run_dir.job_secrets.exists()
    assert state.exit is not None
    words = f"stopped by SIG{word} while its job was submitted; PBS job {JOB} is cancelled"
    assert (state.state, state.exit.message) == ("stopped", words)


def test_the_terminals_ctrl_c_does_not_reach_the_program(submit: Submit, tmp_path: Path):
    run_dir = submit(f"ps -o sid= -p $$ > {tmp_path}/session; echo $$ > {tmp_path}/pid; echo {JOB}")
    assert run_dir.job_file("pbs").exists()
    assert (tmp_path / "session").read_text().strip() == (tmp_path / "pid").read_text().strip()


def test_a_job_that_could_not_be_cancelled_starts_nothing(
    submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "bin" / "qdel").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(DsforgeError, match="could not be cancelled"):
        submit(f"kill -INT $PPID; sleep 0.2; echo {JOB}")
    run_dir, _ = left(tmp_path)
    assert start_job(run_dir, tmp_path, monkeypatch) == 3
    assert run_dir.attempts() == []
    assert left(tmp_path)[1].state == "stopped"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("sleep 30", "did not answer within 0.5 s"),
        ("echo 'qsub: Socket timed out on send/recv operation' >&2; exit 1", "timed out"),
        ("kill -KILL $$", "code -9"),
        ("echo thank you", "no job's id"),
    ],
)
def test_a_job_that_may_be_there_is_told_and_can_be_kept_from_starting(
    submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, words: str
):
    if "sleep" in lines:
        monkeypatch.setattr(batch, "_SUBMIT_SECONDS", 0.5)
    with pytest.raises(DsforgeError, match=words) as caught:
        submit(lines)
    assert (caught.value.code, caught.value.exit_code) == ("DSF248", 3)
    run_dir, state = left(tmp_path)
    assert state.state == "queued"
    assert state.exit is not None
    assert "may have taken the job" in state.exit.message
    assert run_dir.job_secrets.exists()
    stopped = stop_run(run_dir)
    assert (stopped.how, stopped.is_done) == ("unsubmitted", False)
    assert "`qstat -u $USER`" in stopped.message
    assert not run_dir.job_secrets.exists()
    assert start_job(run_dir, tmp_path, monkeypatch) == 3
    assert run_dir.attempts() == []


def test_an_id_that_was_said_before_the_program_hung_counts(submit: Submit, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batch, "_SUBMIT_SECONDS", 2.0)
    assert submit(f"echo {JOB}; exec sleep 30").job_file("pbs").read_text() == f"{JOB}\n"


def test_a_refusal_leaves_no_secrets(submit: Submit, tmp_path: Path):
    with pytest.raises(DsforgeError, match="Unknown queue") as caught:
        submit("echo 'qsub: Unknown queue' >&2; exit 1")
    assert caught.value.code == "DSF241"
    run_dir, state = left(tmp_path)
    assert state.state == "failed"
    assert not run_dir.job_secrets.exists()
    assert job.was_ended(run_dir, state, is_recorded=False)
    assert not job.was_ended(run_dir, state, is_recorded=True)
    run_dir.attempt(1).path.mkdir()
    assert not job.was_ended(run_dir, state, is_recorded=False)


def test_an_id_that_cannot_be_written_down_leaves_no_job(submit: Submit, tmp_path: Path):
    with pytest.raises(DsforgeError) as caught:
        submit(f"for run in {tmp_path}/runs/*; do mkdir $run/pbs-job; done; echo {JOB}")
    assert caught.value.code == "DSF209"
    assert (tmp_path / "qdel.called").read_text() == f"{JOB}\n"
    run_dir, state = left(tmp_path)
    assert state.state == "failed"
    assert not run_dir.job_secrets.exists()
