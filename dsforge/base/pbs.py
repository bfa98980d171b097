"""PBS (OpenPBS, PBS Professional, Torque) through its own programs. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dsforge.base import batch
from dsforge.base.batch import GONE, Job, Scheduler, run

JOB_ID = "PBS_JOBID"
"""Set by PBS in every process of a job."""
_JOB = re.compile(r"[0-9]{1,10}(\[[0-9]*\])?(\.[A-Za-z0-9._-]+)?")
_STARTS = re.compile(r"^Job Id: (\S+)$", re.MULTILINE)
_FIELD = re.compile(r"^    (job_state|comment) = (.*(?:\n\t.*)*)$", re.MULTILINE)
_FORGOTTEN = re.compile(r"Unknown Job|Job has finished|does not exist", re.IGNORECASE)
_WAITING = ("H", "M", "Q", "T", "W")
"""Held, moved to another server, queued, on its way, waiting for its time."""
_OVER = ("C", "F", "X", GONE)
"""Complete, finished, expired."""


def is_job(text: str) -> bool:
    """Tell whether a text is a job's id: `123.server`."""
    return _JOB.fullmatch(text) is not None


def job_at(state: str, reason: str) -> Job:
    """Return a job that is in one of PBS's states, which are letters."""
    if state in _OVER:
        return Job(state, reason, "over")
    return Job(state, reason, "waits" if state in _WAITING else "runs" if state == "R" else "changes")


def look_up(*jobs: str) -> dict[str, Job]:
    """Return what jobs are at, by id; BatchError when PBS cannot be asked, which says nothing of them.

    One that has ended is one that PBS does not know, unless it keeps their history.
    """
    # Its JSON cannot be read when a job has variables that hold quotes; this form can.
    said = run("qstat", "-f", *jobs, is_answer=lambda words: _FORGOTTEN.search(words) is not None)
    found = dict.fromkeys(jobs, job_at(GONE, ""))
    _, *rest = _STARTS.split(said)
    for job, text in zip(rest[::2], rest[1::2], strict=True):
        fields = {name: value.replace("\n\t", "") for name, value in _FIELD.findall(text)}
        # It may add the server's name, or leave it out.
        for wanted in jobs:
            if wanted.partition(".")[0] == job.partition(".")[0]:
                found[wanted] = job_at(fields.get("job_state", ""), fields.get("comment", ""))
    return found


def submit(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run `qsub ...` under an environment and return the job's id; BatchError."""
    return batch.submit(command, environ, _job_in)


def _job_in(said: str) -> str:
    found = "".join(said.strip().splitlines()[-1:])
    return found if is_job(found) else ""


def tell(job: str, signal_name: str) -> None:
    """Signal a running job's first process, and what else is of its session; BatchError."""
    run("qsig", "-s", f"SIG{signal_name}", job)


def cancel(job: str, *, waiting_only: bool = False) -> None:
    """Delete a job; BatchError. PBS does that to one that has started too, and gives it some seconds."""
    if not waiting_only or look_up(job)[job].waits:
        run("qdel", job)


SCHEDULER = Scheduler(
    launcher="pbs",
    name="PBS",
    job_variable=JOB_ID,
    kill="qdel",
    listing="qstat -u $USER",
    is_job=is_job,
    look_up=look_up,
    submit=submit,
    tell=tell,
    cancel=cancel,
)
