"""Slurm through its own programs: what a job is at, and what it is told. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dsforge.base import batch
from dsforge.base.batch import GONE, BatchError, Job, Scheduler, run

JOB_ID = "SLURM_JOB_ID"
"""Set by Slurm in every process of an allocation."""
RESTART_COUNT = "SLURM_RESTART_COUNT"
"""How often Slurm has queued the job again; not set the first time."""
_WAITING = (
    "PENDING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
    "CONFIGURING",
)
_OVER = ("COMPLETED", "FAILED", "OUT_OF_MEMORY", GONE)
_STOPPED = ("CANCELLED", "DEADLINE", "PREEMPTED", "REVOKED", "TIMEOUT")
_HOST_LOST = ("BOOT_FAIL", "NODE_FAIL")
_JOB = re.compile("[0-9]{1,10}")


def is_job(text: str) -> bool:
    """Tell whether a text is a job's id."""
    return _JOB.fullmatch(text) is not None


def job_at(state: str, reason: str) -> Job:
    """Return a job that is in one of Slurm's states."""
    words: dict[str, tuple[str, ...]] = {
        "waits": _WAITING,
        "runs": ("RUNNING",),
        "over": _OVER,
        "stopped": _STOPPED,
        "host_lost": _HOST_LOST,
    }
    for at, states in words.items():
        if state in states:
            return Job(state, reason, at)  # type: ignore[arg-type]  # the keys are what it takes
    return Job(state, reason, "changes")


def look_up(*jobs: str) -> dict[str, Job]:
    """Return what jobs are at, by id; BatchError when Slurm cannot be asked, which says nothing of them."""
    words = ("--noheader", "--states=all", f"--jobs={','.join(jobs)}", "--format=%A|%T|%r")
    try:
        said = run("squeue", *words)
    except BatchError as error:
        if "Invalid job id" not in str(error):
            raise
        said = ""  # so it answers when it knows none of them
    found = dict.fromkeys(jobs, job_at(GONE, ""))
    for line in said.splitlines():
        job, state, reason = line.strip().split("|", 2)
        found[job] = job_at(state, reason)
    return found


def submit(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run `sbatch --parsable ...` under an environment and return the job's id; BatchError."""
    return batch.submit(command, environ, _job_in)


def _job_in(said: str) -> str:
    # Behind a semicolon stands the cluster, where there are several.
    found = "".join(said.strip().splitlines()[-1:]).partition(";")[0]
    return found if is_job(found) else ""


def tell(job: str, signal_name: str) -> None:
    """Signal a running job's batch script alone, none of its ranks; BatchError."""
    run("scancel", "--batch", f"--signal={signal_name}", job)


def cancel(job: str, *, waiting_only: bool = False) -> None:
    """Cancel a job; with `waiting_only` unless it has started meanwhile. BatchError."""
    run("scancel", *(["--state=PENDING"] if waiting_only else []), job)


def requeue(job: str) -> None:
    """Have a running job ended and queued again; BatchError."""
    run("scontrol", "requeue", job)


def hosts(node_list: str) -> tuple[str, ...]:
    """Return the hosts of a node list as Slurm writes it (`node[1-2]`), in order; BatchError."""
    return tuple(run("scontrol", "show", "hostnames", node_list).split())


SCHEDULER = Scheduler(
    launcher="slurm",
    name="Slurm",
    job_variable=JOB_ID,
    kill="scancel",
    listing="squeue --me",
    is_job=is_job,
    look_up=look_up,
    submit=submit,
    tell=tell,
    cancel=cancel,
    requeue=requeue,
)
