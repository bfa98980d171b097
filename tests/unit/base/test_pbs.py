"""What PBS's programs say, with programs of a few lines in their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base import pbs
from dsforge.base.batch import BatchError, Job

QSTAT = """\
Job Id: 12.server.example.com
    Job_Name = small
    job_state = Q
    Variable_List = PBS_O_HOME=/home/me,PBS_O_X=job_state = R,
{tab}PBS_O_LANG=C
    comment = Not Running: Insufficient amount of resource: ngpus (R: 8 A: 4
{tab} T: 4)

Job Id: 13.server.example.com
    Job_Name = other
    job_state = R
""".replace("{tab}", "\t")


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that gives one of PBS's programs words to say, and a code to end with."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def put(program: str, words: str, error: str = "", code: int = 0) -> None:
        text = f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> {tmp_path}/{program}.called\n"
        text += f"cat <<'END'\n{words}END\ncat >&2 <<'END'\n{error}\nEND\nexit {code}\n"
        (tmp_path / program).write_text(text)
        (tmp_path / program).chmod(0o755)

    return put


def test_jobs_are_what_qstat_says_and_over_when_it_knows_them_no_more(says):
    says("qstat", QSTAT, "qstat: Unknown Job Id 14.server\nqstat: 15.server Job has finished, use -x", 35)
    reason = "Not Running: Insufficient amount of resource: ngpus (R: 8 A: 4 T: 4)"
    assert pbs.look_up("12.server", "13.server", "14.server", "15.server") == {
        "12.server": Job("Q", reason, "waits"),
        "13.server": Job("R", "", "runs"),
        "14.server": Job("GONE", "", "over"),
        "15.server": Job("GONE", "", "over"),
    }


def test_what_pbs_does_not_say_is_not_made_up(says):
    says("qstat", "", "qstat: cannot connect to server pbs (errno=15010)", 1)
    with pytest.raises(BatchError, match="cannot connect to server"):
        pbs.look_up("12.server")


@pytest.mark.parametrize(("said", "job"), [("a note\n12.server.org\n", "12.server.org"), ("no id\n", None)])
def test_a_job_has_the_id_that_qsub_prints(says, tmp_path: Path, said: str, job: str | None):
    says("qsub", said)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    if job is None:
        with pytest.raises(BatchError, match="no job's id"):
            pbs.submit(("qsub", "x"), environ)
    else:
        assert pbs.submit(("qsub", "x"), environ) == job


@pytest.mark.parametrize(("state", "deleted"), [("Q", True), ("H", True), ("R", False)])
def test_a_job_that_has_started_meanwhile_is_not_deleted_as_waiting(
    says, tmp_path: Path, state: str, deleted: bool
):
    says("qstat", f"Job Id: 12.server\n    job_state = {state}\n")
    says("qdel", "")
    pbs.cancel("12.server", waiting_only=True)
    assert (tmp_path / "qdel.called").exists() is deleted
    pbs.cancel("12.server")
    assert (tmp_path / "qdel.called").read_text().splitlines()[-1] == "12.server"


def test_signals_have_their_names(says, tmp_path: Path):
    says("qsig", "")
    pbs.tell("12.server", "TERM")
    assert (tmp_path / "qsig.called").read_text() == "-s SIGTERM 12.server\n"


@pytest.mark.parametrize(
    ("text", "is_job"), [("12.server", True), ("12", True), ("3[].s", True), ("-12", False), ("12;x", False)]
)
def test_ids(text: str, is_job: bool):
    assert pbs.is_job(text) is is_job
