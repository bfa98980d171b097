"""Stops a run by the identities it recorded, never by a name or a pattern."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from dsforge.base import processes
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode, ExitKind
from dsforge.base.processes import ProcessId
from dsforge.records import environment
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import ENDED_STATES, RunExit, RunState, write_state
from dsforge.runs.details import read_reports
from dsforge.runs.registry import state_or_fail, supervisor_alive

SUPERVISOR_SECONDS = 30.0
_RANK_SECONDS = 6.0
_KILL_SECONDS = 10.0
_TICK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class StopResult:
    """What stopping did. `how`: already_ended, supervisor (it ended the ranks), ranks (it was dead), late."""

    run_id: str
    how: str
    message: str


def stop_run(run_dir: RunDir) -> StopResult:
    """Stop a run and wait for its end; DsforgeError when it runs on another machine.

    A live supervisor is asked and does the rest; without one the ranks are ended here.
    """
    state = state_or_fail(run_dir)
    if state.state in ENDED_STATES:
        return StopResult(state.run_id, "already_ended", f"the run had ended: {state.state}")
    if state.host != socket.gethostname():
        raise DsforgeError(
            "DSF224",
            f"run {state.run_id} is supervised on another machine",
            Place(host=state.host),
            f"run `dsforge runs stop {state.run_id}` on {state.host}",
            exit_code=ExitCode.ENVIRONMENT,
        )
    if supervisor_alive(state) and processes.send_signal(state.supervisor, signal.SIGTERM):
        if _wait(lambda: not processes.is_alive(state.supervisor), SUPERVISOR_SECONDS):
            return StopResult(state.run_id, "supervisor", "the run was stopped")
        return StopResult(
            state.run_id,
            "late",
            f"the supervisor (pid {state.supervisor.pid}) was told to stop and still runs",
        )
    ended = _end_ranks(run_dir, state)
    message = f"the supervisor was dead; {ended} processes of the run were ended"
    how = RunExit(int(ExitCode.TERMINATED), ExitKind.TERMINATED.value, message)
    write_state(run_dir.state, replace(state, state="stopped", ended_time=time.time(), exit=how))
    return StopResult(state.run_id, "ranks", message)


def _end_ranks(run_dir: RunDir, state: RunState) -> int:
    """Ask the recorded wrappers to end, then kill what carries the run's mark; return how many there were."""
    mark = (environment.RUN_ID, state.run_id)
    reports = read_reports(run_dir.attempt(state.attempt))
    wrappers = [ProcessId(report.pid, report.pid_start) for report in reports]
    found = processes.carrying(*mark)
    asked = [
        wrapper
        for wrapper in wrappers
        if processes.carries(wrapper, *mark) and processes.send_signal(wrapper, signal.SIGTERM)
    ]
    _wait(lambda: not any(map(processes.is_alive, asked)), _RANK_SECONDS)
    deadline = time.monotonic() + _KILL_SECONDS
    while (left := processes.carrying(*mark)) and time.monotonic() < deadline:
        for process in left:
            processes.send_signal(process, signal.SIGKILL)
        time.sleep(_TICK_SECONDS)
    return len(found)


def _wait(done: Callable[[], bool], patience_seconds: float) -> bool:
    deadline = time.monotonic() + patience_seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_TICK_SECONDS)
    return True
