"""Slurm through its own programs: what a job is at, and what it is told. Standard library only."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

JOB_ID = "SLURM_JOB_ID"
"""Set by Slurm in every process of an allocation."""
RESTART_COUNT = "SLURM_RESTART_COUNT"
"""How often Slurm has queued the job again; not set the first time."""
_SECONDS = 60.0
"""For Slurm's controller to answer: its own clients wait for several times as long when it is busy."""
_WAITING = (
    "PENDING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
    "CONFIGURING",
)
_OVER = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)
GONE = "GONE"
"""The state of a job that Slurm no longer remembers: it forgets ended ones after some minutes."""
_JOB = re.compile("[0-9]{1,10}")


class SlurmError(Exception):
    """A program of Slurm is not here, did not answer or refused, in its own words."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one moment: its state and Slurm's reason for it, in Slurm's words."""

    state: str
    reason: str

    @property
    def waits(self) -> bool:
        """Tell whether it waits for its nodes, the first time or again."""
        return self.state in _WAITING

    @property
    def is_over(self) -> bool:
        """Tell whether nothing of it runs and nothing will."""
        return self.state in _OVER or self.state == GONE


def is_job(text: str) -> bool:
    """Tell whether a text is a job's id."""
    return _JOB.fullmatch(text) is not None


def look_up(*jobs: str) -> dict[str, Job]:
    """Return what jobs are at, by id; SlurmError when Slurm cannot be asked, which says nothing of them."""
    words = ("--noheader", "--states=all", f"--jobs={','.join(jobs)}", "--format=%A|%T|%r")
    try:
        said = _run("squeue", *words)
    except SlurmError as error:
        if "Invalid job id" not in str(error):
            raise
        said = ""  # so it answers when it knows none of them
    found = dict.fromkeys(jobs, Job(GONE, ""))
    for line in said.splitlines():
        job, state, reason = line.strip().split("|", 2)
        found[job] = Job(state, reason)
    return found


def submit(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run `sbatch --parsable ...` under an environment and return the job's id; SlurmError."""
    # Behind a semicolon stands the cluster, where there are several.
    job = _run(*command, environ=environ).strip().splitlines()[-1:]
    found = "".join(job).partition(";")[0]
    if not is_job(found):
        raise SlurmError(f"sbatch answered {found!r}, which is no job's id")
    return found


def tell(job: str, signal_name: str) -> None:
    """Signal a running job's batch script alone, none of its ranks; SlurmError."""
    _run("scancel", "--batch", f"--signal={signal_name}", job)


def cancel(job: str, *, waiting_only: bool = False) -> None:
    """Cancel a job; with `waiting_only` unless it has started meanwhile. SlurmError."""
    _run("scancel", *(["--state=PENDING"] if waiting_only else []), job)


def requeue(job: str) -> None:
    """Have a running job ended and queued again; SlurmError."""
    _run("scontrol", "requeue", job)


def hosts(node_list: str) -> tuple[str, ...]:
    """Return the hosts of a node list as Slurm writes it (`node[1-2]`), in order; SlurmError."""
    return tuple(_run("scontrol", "show", "hostnames", node_list).split())


def _run(*words: str, environ: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            list(words),
            env=dict(environ) if environ is not None else None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{words[0]}: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").splitlines()
        said = "; ".join(line.removeprefix(f"{words[0]}: error: ").strip() for line in lines if line.strip())
        raise SlurmError(f"{words[0]}: {said or f'code {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")
