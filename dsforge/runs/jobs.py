"""Runs whose supervisor lives in a batch job: what the job is at, how it is told, how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dsforge.base.batch import BatchError, Job, Scheduler
from dsforge.base.exits import ExitCode, ExitKind, code_of_signal
from dsforge.base.files import open_own, read_own
from dsforge.base.schedulers import SCHEDULERS
from dsforge.base.text import without_escapes
from dsforge.records.reasons import Reason
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import (
    ACTIVE_STATES,
    ENDED_STATES,
    QUEUED,
    RunExit,
    RunState,
    read_state,
    write_state,
)

_LOG_LINES = 5
_LOG_BYTES = 8192


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job by its scheduler and the id that this one has for it."""

    scheduler: Scheduler
    id: str

    def __str__(self) -> str:
        return f"{self.scheduler.name} job {self.id}"

    def look_up(self) -> Job:
        """Return what it is at; BatchError when that cannot be asked."""
        return self.scheduler.look_up(self.id)[self.id]


def job_of(run_dir: RunDir) -> BatchJob | None:
    """Return the job that `dsforge launch` submitted for a run, or None."""
    for name, scheduler in SCHEDULERS.items():
        try:
            text = read_own(run_dir.job_file(name)).strip()
        except (OSError, UnicodeDecodeError):
            continue
        if scheduler.is_job(text):
            return BatchJob(scheduler, text)
    return None


def jobs_of(runs: Iterable[tuple[RunDir, RunState | None]]) -> dict[Path, Job]:
    """Return what the jobs of runs that have not succeeded are at; of none where that cannot be asked."""
    jobs = {
        run_dir.path: job
        for run_dir, state in runs
        if state is not None and state.state != "succeeded" and (job := job_of(run_dir)) is not None
    }
    found: dict[Path, Job] = {}
    for scheduler in SCHEDULERS.values():
        ids = {path: job.id for path, job in jobs.items() if job.scheduler is scheduler}
        with contextlib.suppress(BatchError):
            known = scheduler.look_up(*ids.values()) if ids else {}
            found |= {path: known[job] for path, job in ids.items() if job in known}
    return found


def ask(run_dir: RunDir, job: BatchJob, found: Job, signal_name: str) -> bool:
    """Cancel a job that waits, signal the supervisor in one that runs; False while nobody can be told."""
    state = read_state(run_dir.state)
    with contextlib.suppress(BatchError):  # it has ended meanwhile
        if found.waits:
            job.scheduler.cancel(job.id, waiting_only=True)
            return True
        if state is not None and state.state in ACTIVE_STATES:
            job.scheduler.tell(job.id, signal_name)
            return True
    return False


def close(run_dir: RunDir, state: RunState, job: BatchJob, found: Job, asked: int | None = None) -> RunState:
    """Return how a run stands whose job is over, and write it down where no supervisor has.

    `asked`: the signal by which somebody wanted its end.
    """
    with contextlib.suppress(OSError):
        run_dir.job_secrets.unlink(missing_ok=True)  # of a job that never came to read them
    if state.state in ENDED_STATES:
        return state
    how = _how(run_dir, state, job, found, asked)
    is_stop = how.kind in (ExitKind.INTERRUPTED, ExitKind.TERMINATED)
    ended = replace(state, state="stopped" if is_stop else "failed", exit=how, ended_time=time.time())
    write_state(run_dir.state, ended)
    return ended


def _how(run_dir: RunDir, state: RunState, job: BatchJob, found: Job, asked: int | None) -> RunExit:
    began = bool(run_dir.attempts())
    when = "while it was queued" if state.state == QUEUED else "and its supervisor did not live to say why"
    message = f"{job} ended ({found.state}) {when}"
    if found.at == "stopped" or asked is not None:
        number = asked or signal.SIGTERM
        kind = ExitKind.INTERRUPTED if number == signal.SIGINT else ExitKind.TERMINATED
        is_preempted = found.state == "PREEMPTED"
        reason = Reason.PREEMPTION if is_preempted else Reason.STOPPED
        return RunExit(code_of_signal(number), kind.value, message, reason=reason.value)
    if found.at == "host_lost":
        return RunExit(
            code_of_signal(signal.SIGKILL), ExitKind.HOST_LOST.value, message, reason=Reason.HOST_LOST.value
        )
    message = "\n".join([message, *(f"  {line}" for line in _last_lines(run_dir.job_log))])
    if began:
        code, kind, reason = code_of_signal(signal.SIGKILL), ExitKind.LAUNCHER_DIED, Reason.LAUNCHER
    else:
        code, kind = int(ExitCode.BEFORE_FIRST_STEP), ExitKind.BEFORE_FIRST_STEP
        reason = Reason.ENVIRONMENT
    if found.state == "OUT_OF_MEMORY":
        reason = Reason.HOST_MEMORY
    return RunExit(code, kind.value, message, reason=reason.value)


def _last_lines(log: Path) -> list[str]:
    try:
        with open_own(log) as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LOG_BYTES))
            data = stream.read(_LOG_BYTES)
    except OSError:
        return []
    return without_escapes(data.decode("utf-8", "replace")).splitlines()[-_LOG_LINES:]
