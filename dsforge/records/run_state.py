"""`state.json`: where a run stands and how it ended. Written by the supervisor, read by everybody."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dsforge.base.canonical import dumps
from dsforge.base.files import write_atomically
from dsforge.base.processes import ProcessId

SCHEMA_VERSION = 1
ACTIVE_STATES = ("starting", "running", "stopping")
"""States that need a live supervisor; without one the run is lost."""
ENDED_STATES = ("succeeded", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class RunExit:
    """How a run ended. `kind` is a value of ExitKind; rank and signal are those of the first cause."""

    code: int
    kind: str
    message: str
    rank: int | None = None
    signal: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Restart:
    """A new attempt and why the one before it ended. Time in seconds since the epoch."""

    attempt: int
    time: float
    why: str


@dataclass(frozen=True, slots=True)
class RunState:
    """One run at one moment. Process identities hold on `host` during boot `boot_id` only."""

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
    schema_version: int = SCHEMA_VERSION


def write_state(path: Path, state: RunState) -> None:
    """Replace state.json as a whole; OSError when the disk refuses."""
    write_atomically(path, dumps(asdict(state)))


def read_state(path: Path) -> RunState | None:
    """Return a run's state, or None when the file is missing or not one of ours."""
    try:
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
        data["supervisor"] = ProcessId(**data["supervisor"])
        data["launcher"] = ProcessId(**data["launcher"]) if data["launcher"] else None
        data["restarts"] = tuple(Restart(**item) for item in data["restarts"])
        data["exit"] = RunExit(**data["exit"]) if data["exit"] else None
        return RunState(**data)
    except (OSError, ValueError, TypeError, KeyError):
        return None
