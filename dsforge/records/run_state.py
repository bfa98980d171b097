"""`state.json`: where a run stands and how it ended. Written by the supervisor, read by everybody."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from dsforge.base.canonical import dumps, loads
from dsforge.base.files import read_own, write_atomically
from dsforge.base.processes import ProcessId
from dsforge.records.typed import build

SCHEMA_VERSION = 1
ACTIVE_STATES = ("starting", "running", "stopping")
"""States that need a live supervisor; without one the run is lost."""
QUEUED = "queued"
"""The run waits for a scheduler, before its first attempt or between two."""
ENDED_STATES = ("succeeded", "failed", "stopped")
MOST_ATTEMPTS = 1_001
"""A recipe's launch.restarts is at most 1000."""
_PID_END = 2**22 + 1
"""PID_MAX_LIMIT of the Linux kernel (include/linux/threads.h)."""
_TIME_END = 253_402_300_800.0
"""The year 10000, which no calendar function writes any more."""
_MOST_CODE = 255


@dataclass(frozen=True, slots=True)
class RunExit:
    """How a run ended. `kind` is a value of ExitKind, `reason` one of Reason; None where the run ended well.

    Rank and signal are those of the first cause.
    """

    code: int
    kind: str
    message: str
    rank: int | None = None
    signal: int | None = None
    host: str | None = None
    reason: str | None = None
    hint: str | None = None
    """The edit that would mend it."""
    not_restarted: str | None = None
    """Why there was no further attempt, of a run that failed."""


@dataclass(frozen=True, slots=True)
class Restart:
    """A new attempt and why the one before it ended. Time in seconds since the epoch.

    `requeued`: a scheduler queued the job again, which `launch.restarts` does not count.
    """

    attempt: int
    time: float
    why: str
    requeued: bool = False
    reason: str | None = None
    """Why that one ended, a value of Reason."""


@dataclass(frozen=True, slots=True)
class RunState:
    """One run at one moment. Process identities hold on `host` during boot `boot_id` only.

    `supervisor` of a run that is queued for the first time: who submitted it.
    """

    run_id: str
    name: str
    state: str
    attempt: int
    host: str
    boot_id: str
    supervisor: ProcessId
    started_time: float
    launcher: ProcessId | None = None
    ended_time: float | None = None
    restarts: tuple[Restart, ...] = ()
    exit: RunExit | None = None
    trainer: str | None = None
    """That of the plan; None where an older dsforge started the run."""
    schema_version: int = SCHEMA_VERSION


def write_state(path: Path, state: RunState) -> None:
    """Replace state.json as a whole; OSError when the disk refuses."""
    write_atomically(path, dumps(asdict(state)))


def read_state(path: Path) -> RunState | None:
    """Return a run's state, or None when the file is missing, not one of ours, or says what cannot be."""
    try:
        state = build(RunState, loads(read_own(path)))
    except (OSError, ValueError, TypeError):
        return None
    return state if _possible(state) else None


def _possible(state: RunState) -> bool:
    processes = [state.supervisor, *([state.launcher] if state.launcher else [])]
    times = [state.started_time, *(restart.time for restart in state.restarts)]
    times += [state.ended_time] if state.ended_time is not None else []
    return (
        state.schema_version == SCHEMA_VERSION
        and state.state in (*ACTIVE_STATES, QUEUED, *ENDED_STATES)
        and 1 <= state.attempt <= MOST_ATTEMPTS
        and all(0 < process.pid < _PID_END and process.start >= 0 for process in processes)
        and all(0 <= time < _TIME_END for time in times)
        and (state.exit is None or 0 <= state.exit.code <= _MOST_CODE)
    )
