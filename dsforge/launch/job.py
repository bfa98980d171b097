"""`python -m dsforge.launch.job`: the supervisor of a run, in the batch job that was submitted for it.

DSFORGE_RUN names the run. A job that is queued again comes here again, and goes on with a new attempt.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from dsforge.base.batch import BatchError
from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode, ExitKind
from dsforge.base.files import write_atomically
from dsforge.base.schedulers import SCHEDULERS
from dsforge.launch.launchers import launcher_of
from dsforge.launch.run import go_on
from dsforge.launch.types import LaunchRequest, ProgressEvent
from dsforge.plan.types import Plan
from dsforge.rank.secrets import take_secrets
from dsforge.records import environment
from dsforge.records.run_dir import RunDir
from dsforge.records.run_manifest import read_run_manifest
from dsforge.records.run_state import ENDED_STATES, QUEUED, RunExit, RunState, read_state, write_state
from dsforge.render.bundle import Bundle

_UNTOLD = ("step", "rank_up", "rank_ended")


def main() -> int:
    """Supervise the run to its end, or to the end of this job; return the run's exit code."""
    run_dir = RunDir(Path(os.environ[environment.RUN]))
    if run_dir.job_secrets.exists():
        os.environ.update(take_secrets(run_dir.job_secrets, 1))
    request = request_of(run_dir)
    scheduler = SCHEDULERS[request.plan.launch.launcher or ""]
    job = os.environ[scheduler.job_variable]
    is_recorded = run_dir.job_file(scheduler.launcher).exists()
    # Before the state is read: who ends the run looks in the other order, so that one sees the other.
    write_atomically(run_dir.job_file(scheduler.launcher), f"{job}\n")
    state = read_state(run_dir.state)
    if state is not None and state.state == "succeeded":
        return 0
    if state is not None and was_ended(run_dir, state, is_recorded=is_recorded):
        why = f": {state.exit.message}" if state.exit is not None else ""
        sys.stderr.write(f"dsforge: the run was ended before this job began ({state.state}){why}\n")
        return int(ExitCode.ENVIRONMENT)
    _give_notice(request.plan)
    try:
        outcome = go_on(request, run_dir, _say)
    except DsforgeError as error:
        sys.stderr.write(f"dsforge: error[{error.code}]: {error.message}\n")
        how = RunExit(int(error.exit_code), ExitKind.ENVIRONMENT.value, _words(error))
        if (state := read_state(run_dir.state)) is not None:
            write_state(run_dir.state, replace(state, state="failed", exit=how, ended_time=time.time()))
        return how.code
    state = read_state(run_dir.state)
    if state is not None and state.state == QUEUED and scheduler.requeue is not None:
        try:
            scheduler.requeue(job)
        except BatchError as error:
            message = f"{outcome.exit.message}\nthe job could not be queued again: {error}"
            how = replace(outcome.exit, message=message)
            write_state(run_dir.state, replace(state, state="stopped", exit=how, ended_time=time.time()))
    return outcome.exit.code


def was_ended(run_dir: RunDir, state: RunState, *, is_recorded: bool) -> bool:
    """Tell whether a run was ended before any job of it began, which is then to start nothing.

    One that failed in a job goes on when that is queued again: it has an attempt, or `is_recorded`, the job's
    id, which an earlier start of it has written where its submission has not.
    """
    if state.state not in ENDED_STATES or run_dir.attempts():
        return False
    return state.state == "stopped" or not is_recorded


def _give_notice(plan: Plan) -> None:
    """Have this process signalled before the job's time is up, where its scheduler does not do that."""
    job = plan.launch.pbs
    if job is None or not job.notice_seconds or not job.time_seconds:
        return
    number = launcher_of(plan).notice
    assert number is not None, "given by this"
    timer = threading.Timer(job.time_seconds - job.notice_seconds, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def request_of(run_dir: RunDir) -> LaunchRequest:
    """Return what was asked for when the run was submitted; OSError, ValueError where it cannot be read."""
    manifest = read_run_manifest(run_dir.manifest)
    if manifest is None:
        raise ValueError(f"{run_dir.manifest} is no manifest of a run")
    files = {path.name: path.read_text("utf-8") for path in sorted(run_dir.bundle.iterdir())}
    return LaunchRequest(
        plan=Plan.model_validate_json(files["plan.json"]),
        bundle=Bundle(files),
        runs_root=run_dir.path.parent,
        recipe_root=Path(os.environ[environment.ROOT]),
        recipe_path=manifest.recipe_path,
        recipe_text=manifest.recipe_text,
        command=manifest.command,
        environ=dict(os.environ),
        corpus=os.environ.get(environment.CORPUS),
    )


def _words(error: DsforgeError) -> str:
    return f"{error.message} [{error.code}]" + (f"\n{error.hint}" if error.hint else "")


def _say(event: ProgressEvent) -> None:
    if event.name not in _UNTOLD:
        sys.stdout.write(f"{time.strftime('%H:%M:%S')} {event.message}\n")


if __name__ == "__main__":
    sys.exit(main())
