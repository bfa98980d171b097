"""Runs whose supervisor lives in a Slurm job, with programs of a few lines in Slurm's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base import slurm
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunExit, read_state
from dsforge.runs.jobs import ask, close
from dsforge.runs.registry import list_runs
from dsforge.runs.stop import stop_run
from tests.launch_support.run_folders import NOBODY, make_run

LOST = RunExit(137, "host_lost", "host node2 failed after step 9")


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that gives one of Slurm's programs words to say, and a code to end with."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def put(program: str, words: str, code: int = 0) -> None:
        stream = 2 if code else 1
        text = f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> {tmp_path}/{program}.called\n"
        text += f"cat >&{stream} <<'END'\n{words}\nEND\nexit {code}\n"
        (programs / program).write_text(text)
        (programs / program).chmod(0o755)

    return put


def job_run(root: Path, name: str, job: str, **changes) -> RunDir:
    run_dir = make_run(root / "runs", name, host="node1", supervisor=NOBODY, **changes)
    run_dir.slurm_job.write_text(f"{job}\n")
    return run_dir


def test_a_list_asks_slurm_once_and_says_what_the_jobs_say(tmp_path: Path, says):
    says("squeue", "5|RUNNING|None\n6|PENDING|Resources (Nodes)\n8|NODE_FAIL|NodeDown")
    job_run(tmp_path, "a-runs", "5")
    job_run(tmp_path, "b-waits-again", "6", state="failed", exit=LOST, ended_time=200.0)
    job_run(tmp_path, "c-forgotten", "7")
    job_run(tmp_path, "d-failed", "8", state="failed", exit=LOST, ended_time=200.0)
    job_run(tmp_path, "e-succeeded", "9", state="succeeded", ended_time=200.0)
    found = {run.run_id: (run.state, run.job) for run in list_runs(tmp_path / "runs")}
    assert found == {
        "a-runs": ("running", "5"),
        "b-waits-again": ("queued", "6"),
        "c-forgotten": ("lost", "7"),
        "d-failed": ("failed", "8"),
        "e-succeeded": ("succeeded", "9"),
    }
    (asked,) = (tmp_path / "squeue.called").read_text().splitlines()
    assert {"--states=all", "--format=%A|%T|%r"} <= set(asked.split())
    (jobs,) = [word.partition("=")[2] for word in asked.split() if word.startswith("--jobs=")]
    assert sorted(jobs.split(",")) == ["5", "6", "7", "8"]


def test_what_slurm_does_not_say_is_not_made_up(tmp_path: Path, says):
    run_dir = job_run(tmp_path, "a", "5")
    says("squeue", "squeue: error: Unable to contact slurm controller (connect failure)", 1)
    assert [run.state for run in list_runs(tmp_path / "runs")] == ["running"]
    with pytest.raises(Exception, match=r"Slurm cannot be asked: squeue: Unable to contact") as caught:
        stop_run(run_dir)
    assert caught.value.code == "DSF224"
    says("squeue", "slurm_load_jobs error: Invalid job id specified", 1)
    assert slurm.look_up("5") == {"5": slurm.Job("GONE", "")}
    assert [run.state for run in list_runs(tmp_path / "runs")] == ["lost"]


@pytest.mark.parametrize(
    ("state", "word", "asked", "expected"),
    [
        ("queued", "CANCELLED", None, ("stopped", 143, "terminated")),
        ("queued", "CANCELLED", 2, ("stopped", 130, "interrupted")),
        ("running", "TIMEOUT", None, ("stopped", 143, "terminated")),
        ("running", "NODE_FAIL", None, ("failed", 137, "host_lost")),
        ("running", "FAILED", None, ("failed", 137, "launcher_died")),
    ],
)
def test_a_job_that_ended_without_a_word_ends_its_run(tmp_path: Path, state, word, asked, expected):
    run_dir = job_run(tmp_path, "a", "5", state=state)
    before = read_state(run_dir.state)
    assert before is not None
    close(run_dir, before, "5", slurm.Job(word, ""), asked)
    after = read_state(run_dir.state)
    assert after is not None
    assert after.exit is not None
    assert (after.state, after.exit.code, after.exit.kind) == expected


def test_a_job_that_could_not_start_the_supervisor_says_why(tmp_path: Path):
    run_dir = job_run(tmp_path, "a", "5", state="queued")
    run_dir.attempt(1).path.rmdir()
    run_dir.job_log.write_text("dsforge: no Python with dsforge\n")
    before = read_state(run_dir.state)
    assert before is not None
    how = close(run_dir, before, "5", slurm.Job("FAILED", "NonZeroExitCode")).exit
    assert how == RunExit(
        4,
        "before_first_step",
        "Slurm job 5 ended (FAILED) while it was queued\n  dsforge: no Python with dsforge",
        reason="environment",
    )


def test_a_supervisor_in_a_job_is_told_through_slurm(tmp_path: Path, says):
    run_dir = job_run(tmp_path, "a", "5")
    job = slurm.Job("RUNNING", "")
    says("scancel", "")
    assert ask(run_dir, "5", job, "TERM")
    assert ask(run_dir, "5", slurm.Job("PENDING", ""), "TERM")
    waiting = job_run(tmp_path, "b", "6", state="queued")
    assert not ask(waiting, "6", job, "TERM")  # it runs, and its supervisor does not listen yet
    assert (tmp_path / "scancel.called").read_text().splitlines() == [
        "--batch --signal=TERM 5",
        "--state=PENDING 5",
    ]
