"""Which runs there are. A run is a folder under the runs root; nothing else keeps a list."""

from __future__ import annotations

import difflib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dsforge.base import processes
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import ACTIVE_STATES, RunExit, RunState, read_state

ROOT_VARIABLE = "DSFORGE_RUNS"
DEFAULT_ROOT = "runs"
LOST = "lost"
"""An active run whose supervisor is dead: nobody will say how it ended."""
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in a list. Times in seconds since the epoch; `state` includes `lost` and `unknown`."""

    run_id: str
    path: Path
    name: str
    state: str
    attempt: int
    host: str
    started_time: float
    ended_time: float | None
    exit: RunExit | None


def runs_root(environ: Mapping[str, str]) -> Path:
    """Return the folder that holds runs: DSFORGE_RUNS, or `runs` in the working directory."""
    return Path(environ.get(ROOT_VARIABLE) or DEFAULT_ROOT).absolute()


def list_runs(root: Path) -> tuple[RunSummary, ...]:
    """Return every run under a root, newest first; none without a root. OSError when it is unreadable."""
    if not root.is_dir():
        return ()
    found = [summarise(RunDir(path)) for path in root.iterdir() if _is_run(path)]
    return tuple(sorted(found, key=lambda run: (run.started_time, run.run_id), reverse=True))


def find_run(root: Path, run_id: str) -> RunDir:
    """Return the run of this id or of this beginning of one; DsforgeError when none or several fit."""
    known = [run.run_id for run in list_runs(root)]
    fitting = [run_id] if run_id in known else [name for name in known if run_id and name.startswith(run_id)]
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
    raise DsforgeError("DSF220", f"there is no run {run_id!r}", Place(file=str(root)), hint)


def summarise(run_dir: RunDir) -> RunSummary:
    """Return a run as it stands now."""
    state = read_state(run_dir.state)
    if state is None:
        made = run_dir.path.stat().st_mtime
        return RunSummary(run_dir.path.name, run_dir.path, "", UNKNOWN, 0, "", made, None, None)
    return RunSummary(
        run_id=state.run_id,
        path=run_dir.path,
        name=state.name,
        state=current_state(state),
        attempt=state.attempt,
        host=state.host,
        started_time=state.started_time,
        ended_time=state.ended_time,
        exit=state.exit,
    )


def current_state(state: RunState) -> str:
    """Return the recorded state, or `lost` when it needs a supervisor and that one is dead."""
    if state.state not in ACTIVE_STATES or state.host != socket.gethostname():
        return state.state
    return state.state if supervisor_alive(state) else LOST


def supervisor_alive(state: RunState) -> bool:
    """Tell whether the run's supervisor lives; only meaningful on the run's own host."""
    return state.boot_id == processes.boot_id() and processes.is_alive(state.supervisor)


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
    return run_dir.state.is_file() or run_dir.manifest.is_file()
