"""Which runs there are. A run is a folder under the runs root; nothing else keeps a list."""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dsforge.base import lease, processes
from dsforge.base.batch import Job
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import ACTIVE_STATES, ENDED_STATES, QUEUED, RunExit, RunState, read_state
from dsforge.runs.jobs import job_of, jobs_of
from dsforge.runs.lost import Loss, find_loss

ROOT_VARIABLE = "DSFORGE_RUNS"
DEFAULT_ROOT = "runs"
LOST = "lost"
"""An active run whose supervisor is dead: nobody will say how it ended."""
UNKNOWN = "unknown"
LATEST = "latest"
"""Instead of an id: the run that was started last."""
_ID = re.compile("[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in a list. Times in seconds since the epoch; `state` includes `lost` and `unknown`.

    `loss`: of a lost run, which has no `exit`; its `ended_time` is then the loss's. `job`: its id, where a
    batch job of `scheduler` supervises the run. `trainer` as `RunState` has it.
    """

    run_id: str
    path: Path
    name: str
    state: str
    attempt: int
    host: str
    started_time: float
    ended_time: float | None
    exit: RunExit | None
    loss: Loss | None = None
    job: str | None = None
    scheduler: str | None = None
    trainer: str | None = None


def runs_root(environ: Mapping[str, str]) -> Path:
    """Return the folder that holds runs: DSFORGE_RUNS, or `runs` in the working directory."""
    return Path(environ.get(ROOT_VARIABLE) or DEFAULT_ROOT).absolute()


def list_runs(root: Path) -> tuple[RunSummary, ...]:
    """Return every run under a root, newest first; none without a root. OSError when it is unreadable."""
    if not root.is_dir():
        return ()
    run_dirs = [RunDir(path) for path in root.iterdir() if _is_run(path)]
    states = [(run_dir, read_state(run_dir.state)) for run_dir in run_dirs]
    jobs = jobs_of(states)
    found = [_summary(run_dir, state, jobs.get(run_dir.path)) for run_dir, state in states]
    return tuple(sorted(found, key=lambda run: (run.started_time, run.run_id), reverse=True))


def lost_runs(root: Path) -> list[RunDir]:
    """Return the runs under a root that nobody supervises and that did not end; OSError as `list_runs`."""
    return [RunDir(run.path) for run in list_runs(root) if run.state == LOST]


def find_run(root: Path, run_id: str = LATEST) -> RunDir:
    """Return the run of this id or beginning of one, or the latest; DsforgeError when none or several fit.

    An id is the name of a folder right under the root.
    """
    runs = list_runs(root)
    known = [run.run_id for run in runs]
    if run_id in known:
        return RunDir(root / run_id)
    if run_id == LATEST and known:
        return RunDir(root / known[0])
    fitting = [name for name in known if run_id and name.startswith(run_id)]
    if len(fitting) == 1:
        return RunDir(root / fitting[0])
    if fitting:
        raise DsforgeError(
            "DSF221",
            f"{run_id!r} is the beginning of {len(fitting)} runs",
            Place(file=str(root)),
            f"write more of the id: {', '.join(fitting[:3])}",
        )
    near = difflib.get_close_matches(run_id, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "see `dsforge runs list`; DSFORGE_RUNS names the folder"
    message = "there is no run" if run_id == LATEST else f"there is no run {run_id!r}"
    raise DsforgeError("DSF220", message, Place(file=str(root)), hint)


def summarise(run_dir: RunDir) -> RunSummary:
    """Return a run as it stands now. Its id is its folder's name, whatever its files say."""
    state = read_state(run_dir.state)
    return _summary(run_dir, state, jobs_of([(run_dir, state)]).get(run_dir.path))


def _summary(run_dir: RunDir, state: RunState | None, job: Job | None) -> RunSummary:
    if state is None:
        made = run_dir.path.stat().st_mtime
        return RunSummary(run_dir.path.name, run_dir.path, "", UNKNOWN, 0, "", made, None, None)
    word = _job_state(state, job) if job is not None else current_state(run_dir, state)
    loss = _loss(run_dir, state, job) if word == LOST else None
    submitted = job_of(run_dir)
    return RunSummary(
        run_id=run_dir.path.name,
        path=run_dir.path,
        name=state.name,
        state=word,
        attempt=state.attempt,
        host=state.host,
        started_time=state.started_time,
        ended_time=loss.time if loss else state.ended_time,
        exit=state.exit,
        loss=loss,
        job=submitted.id if submitted else None,
        scheduler=submitted.scheduler.name if submitted else None,
        trainer=state.trainer,
    )


def _loss(run_dir: RunDir, state: RunState, job: Job | None) -> Loss:
    try:
        return find_loss(run_dir, state, job)
    except OSError as error:  # of this run alone: the others are still told
        return Loss(f"nobody supervises it, and what its ranks left cannot be read: {error}", None)


def _job_state(state: RunState, job: Job) -> str:
    """Return what a run is at whose supervisor lives in a job; one that is over says nothing more."""
    if job.waits:
        return QUEUED
    return LOST if job.is_over and state.state not in ENDED_STATES else state.state


def current_state(run_dir: RunDir, state: RunState) -> str:
    """Return the recorded state, or `lost` when it needs a supervisor and that one is dead."""
    if state.state not in ACTIVE_STATES or state.host != socket.gethostname():
        return state.state
    return state.state if supervisor_alive(run_dir, state) else LOST


def supervisor_alive(run_dir: RunDir, state: RunState) -> bool:
    """Tell whether the recorded process lives and the run's lease is held; on the run's own host only."""
    lives = state.boot_id == processes.boot_id() and processes.is_alive(state.supervisor)
    return lives and lease.is_held(run_dir.lease)


def state_or_fail(run_dir: RunDir) -> RunState:
    """Return a run's state; DsforgeError when its file cannot be read."""
    state = read_state(run_dir.state)
    if state is None:
        raise DsforgeError(
            "DSF222",
            f"run {run_dir.path.name} has no readable state",
            Place(file=str(run_dir.state)),
            "its start was cut short, or a newer dsforge wrote it",
            exit_code=ExitCode.ENVIRONMENT,
        )
    return state


def _is_run(path: Path) -> bool:
    run_dir = RunDir(path)
    # A link leads elsewhere: what is done to a run is done right here.
    is_ours = _ID.fullmatch(path.name) is not None and not path.name.startswith(".") and not path.is_symlink()
    return is_ours and (run_dir.state.is_file() or run_dir.manifest.is_file())
