"""Runs whose supervisor lives in a Slurm job: what the job is at, how it is told, how it ended."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dsforge.base import slurm
from dsforge.base.exits import ExitCode, ExitKind, code_of_signal
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


def job_of(run_dir: RunDir) -> str | None:
    """Return the id of the job that `dsforge launch` submitted for a run, or None."""
    try:
        text = run_dir.slurm_job.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if slurm.is_job(text) else None


def jobs_of(runs: Iterable[tuple[RunDir, RunState | None]]) -> dict[Path, slurm.Job]:
    """Return what the jobs of runs that have not succeeded are at; of none where Slurm cannot be asked."""
    ids = {
        run_dir.path: job
        for run_dir, state in runs
        if state is not None and state.state != "succeeded" and (job := job_of(run_dir)) is not None
    }
    if not ids:
        return {}
    try:
        found = slurm.look_up(*ids.values())
    except slurm.SlurmError:
        return {}
    return {path: found[job] for path, job in ids.items()}


def ask(run_dir: RunDir, job: str, found: slurm.Job, signal_name: str) -> bool:
    """Cancel a job that waits, signal the supervisor in one that runs; False while nobody can be told."""
    state = read_state(run_dir.state)
    with contextlib.suppress(slurm.SlurmError):  # it has ended meanwhile
        if found.waits:
            slurm.cancel(job, waiting_only=True)
            return True
        if state is not None and state.state in ACTIVE_STATES:
            slurm.tell(job, signal_name)
            return True
    return False


def close(run_dir: RunDir, state: RunState, job: str, found: slurm.Job, asked: int | None = None) -> RunState:
    """Return how a run stands whose job is over, and write it down where no supervisor has.

    `asked`: the signal by which somebody wanted its end.
    """
    if state.state in ENDED_STATES:
        return state
    how = _how(run_dir, state, job, found, asked)
    is_stop = how.kind in (ExitKind.INTERRUPTED, ExitKind.TERMINATED)
    ended = replace(state, state="stopped" if is_stop else "failed", exit=how, ended_time=time.time())
    write_state(run_dir.state, ended)
    return ended


def _how(run_dir: RunDir, state: RunState, job: str, found: slurm.Job, asked: int | None) -> RunExit:
    began = bool(run_dir.attempts())
    when = "while it was queued" if state.state == QUEUED else "and its supervisor did not live to say why"
    message = f"Slurm job {job} ended ({found.state}) {when}"
    if found.state in ("CANCELLED", "TIMEOUT", "DEADLINE", "PREEMPTED", "REVOKED") or asked is not None:
        number = asked or signal.SIGTERM
        kind = ExitKind.INTERRUPTED if number == signal.SIGINT else ExitKind.TERMINATED
        is_preempted = found.state == "PREEMPTED"
        reason = Reason.PREEMPTION if is_preempted else Reason.STOPPED
        return RunExit(code_of_signal(number), kind.value, message, reason=reason.value)
    if found.state in ("NODE_FAIL", "BOOT_FAIL"):
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
        data = log.read_bytes()[-_LOG_BYTES:]
    except OSError:
        return []
    return without_escapes(data.decode("utf-8", "replace")).splitlines()[-_LOG_LINES:]
