"""Run folders made by hand, for what only reads them."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from dsforge.base import processes
from dsforge.base.canonical import dump_line
from dsforge.base.files import append_line
from dsforge.base.processes import ProcessId
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunState, write_state
from dsforge.records.streams import Line

NOBODY = ProcessId(pid=1, start=2**60)
"""An identity that no process has."""


def myself() -> ProcessId:
    identity = processes.identify(os.getpid())
    assert identity is not None
    return identity


def make_run(root: Path, run_id: str, **changes: Any) -> RunDir:
    run_dir = RunDir(root / run_id)
    values: dict[str, Any] = {
        "name": "tiny",
        "state": "running",
        "attempt": 1,
        "host": socket.gethostname(),
        "boot_id": processes.boot_id(),
        "supervisor": myself(),
        "started_time": 100.0,
        **changes,
    }
    for number in range(1, values["attempt"] + 1):
        run_dir.attempt(number).path.mkdir(parents=True, exist_ok=True)
    write_state(run_dir.state, RunState(run_id=run_id, **values))
    return run_dir


def write_lines(path: Path, *lines: Line) -> None:
    for line in lines:
        append_line(path, dump_line(line.as_dict()))
