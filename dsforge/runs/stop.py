"""Stops a run by the identities it recorded, never by a name or a pattern."""

from __future__ import annotations

import math
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from dsforge.base import lease, processes
from dsforge.base.batch import BatchError, Job
from dsforge.base.canonical import loads
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode, ExitKind
from dsforge.base.files import read_own
from dsforge.base.schedulers import SCHEDULERS
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import ENDED_STATES, QUEUED, RunExit, RunState, read_state, write_state
from dsforge.runs.jobs import BatchJob, ask, close, job_of
from dsforge.runs.reaper import end_here, question
from dsforge.runs.registry import state_or_fail, supervisor_alive

SUPERVISOR_SECONDS = 30.0
"""For a supervisor to end its ranks, besides the time that they may take for a checkpoint."""
_TICK_SECONDS = 0.1
_LOOK_SECONDS = 1.0
_ASK_SECONDS = 5.0
_LISTINGS = " or ".join(f"`{scheduler.listing}`" for scheduler in SCHEDULERS.values())


@dataclass(frozen=True, slots=True)
class StopResult:
    """What stopping did. `how`: already_ended, supervisor (it ended the ranks), ranks (it was dead).

    Or what it could not do: late (something runs still), silent (hosts did not answer, and the run stays
    lost), unsubmitted (no job of it is known, and one may be there).
    """

    run_id: str
    how: str
    message: str

    @property
    def is_done(self) -> bool:
        """Tell whether nothing of the run is left, as far as anybody can know."""
        return self.how not in ("late", "silent", "unsubmitted")


@dataclass(frozen=True, slots=True)
class Rest:
    """What was ended of a run on other hosts, in words. `is_clean`: all have answered and nothing is left."""

    words: str = ""
    is_clean: bool = True


Elsewhere = Callable[[RunDir], Rest]
"""Ends what is left of a run on its other hosts."""


def stop_run(
    run_dir: RunDir, *, at_once: bool = False, elsewhere: Elsewhere = lambda _: Rest()
) -> StopResult:
    """Stop a run and wait for its end; DsforgeError when it is another machine's or user's to stop.

    A live supervisor is asked and does the rest, after a checkpoint unless `at_once`; without one the ranks
    are ended here, and `elsewhere`.
    """
    state, run_id = state_or_fail(run_dir), run_dir.path.name
    if (job := job_of(run_dir)) is not None and state.state != "succeeded":
        return _stop_job(run_dir, state, job, at_once=at_once)
    if state.state in ENDED_STATES:
        return StopResult(run_id, "already_ended", f"the run had ended: {state.state}")
    if state.state == QUEUED:
        return _stop_unsubmitted(run_dir, state, at_once=at_once)
    if state.host != socket.gethostname():
        raise DsforgeError(
            "DSF224",
            f"run {run_id} is supervised on another machine",
            Place(host=state.host),
            f"run `dsforge runs stop {run_id}` on {state.host}",
            exit_code=ExitCode.ENVIRONMENT,
        )
    number = signal.SIGQUIT if at_once else signal.SIGTERM
    if _supervises(run_dir, state) and processes.send_signal(state.supervisor, number):
        patience = SUPERVISOR_SECONDS + (0.0 if at_once else _stop_timeout_seconds(run_dir))
        if _wait(lambda: not processes.is_alive(state.supervisor), patience):
            return StopResult(run_id, "supervisor", _last_words(run_dir))
        return StopResult(
            run_id,
            "late",
            f"the supervisor (pid {state.supervisor.pid}) was told to stop and still runs",
        )
    check_unsupervised(run_dir, state)
    return _stop_lost(run_dir, state, elsewhere)


def _stop_lost(run_dir: RunDir, state: RunState, elsewhere: Elsewhere) -> StopResult:
    """End what is left of a run that nobody supervises; it is stopped once that is known to be nothing."""
    run_id = run_dir.path.name
    here, rest = end_here(question(run_dir)), elsewhere(run_dir)
    message = f"the supervisor was dead; {here.found} processes of the run were ended{rest.words}"
    if here.left:
        return StopResult(run_id, "late", f"{message}; {here.left} could not be ended")
    if not rest.is_clean:
        return StopResult(run_id, "silent", f"{message}; the run stays lost until all hosts have answered")
    _write_stopped(run_dir, state, message)
    return StopResult(run_id, "ranks", message)


def _write_stopped(run_dir: RunDir, state: RunState, message: str) -> None:
    how = RunExit(int(ExitCode.TERMINATED), ExitKind.TERMINATED.value, message)
    write_state(run_dir.state, replace(state, state="stopped", ended_time=time.time(), exit=how))


def _stop_unsubmitted(run_dir: RunDir, state: RunState, *, at_once: bool) -> StopResult:
    """End a run of which no job is known; one that is there all the same then starts nothing."""
    run_dir.job_secrets.unlink(missing_ok=True)
    message = (
        "the run was queued and no job of it is known: one may exist, starts nothing, and says so in "
        f"{run_dir.job_log}; {_LISTINGS} shows your jobs"
    )
    _write_stopped(run_dir, state, message)
    # After the state: a job that begins writes its id down before it reads the state.
    if (job := job_of(run_dir)) is not None:
        return _stop_job(run_dir, state, job, at_once=at_once)
    return StopResult(run_dir.path.name, "unsubmitted", message)


def check_unsupervised(run_dir: RunDir, state: RunState) -> None:
    """Raise DsforgeError DSF225 when somebody holds a run's lease on this host."""
    if lease.is_held(run_dir.lease):
        raise DsforgeError(
            "DSF225",
            f"run {run_dir.path.name} has a supervisor, but it is not pid {state.supervisor.pid}, "
            "or not this user's",
            Place(file=str(run_dir.lease)),
            "stop it as the user who started it; `fuser` names the process that holds this file",
            exit_code=ExitCode.ENVIRONMENT,
        )


def _stop_job(run_dir: RunDir, state: RunState, job: BatchJob, *, at_once: bool) -> StopResult:
    """Stop a run that a batch job supervises, from any host that reaches its scheduler."""
    run_id, word = run_dir.path.name, "QUIT" if at_once else "TERM"
    deadline = time.monotonic() + SUPERVISOR_SECONDS + (0.0 if at_once else _stop_timeout_seconds(run_dir))
    asked = False
    next_ask = 0.0
    while not (found := _look_up(run_dir, job)).is_over:
        now = time.monotonic()
        if now > deadline:
            kill = f"{job.scheduler.kill} {job.id}"
            message = f"{job} was told to stop and is still {found.state}; `{kill}` kills it"
            return StopResult(run_id, "late", message)
        if now > next_ask:
            # Again and again: it may be queued, or started, between the look and the word.
            next_ask = now + _ASK_SECONDS
            asked = ask(run_dir, job, found, word) or asked
        time.sleep(_LOOK_SECONDS)
    if not asked and state.state in ENDED_STATES:
        return StopResult(run_id, "already_ended", f"the run had ended: {state.state}")
    ended = close(run_dir, state_or_fail(run_dir), job, found)
    return StopResult(run_id, "supervisor", ended.exit.message if ended.exit else "the run was stopped")


def _look_up(run_dir: RunDir, job: BatchJob) -> Job:
    try:
        return job.look_up()
    except BatchError as error:
        raise DsforgeError(
            "DSF224",
            f"run {run_dir.path.name} is supervised in {job}, and {job.scheduler.name} cannot be asked: "
            f"{error}",
            hint=f"run `dsforge runs stop {run_dir.path.name}` on a host of the cluster",
            exit_code=ExitCode.ENVIRONMENT,
        ) from error


def _stop_timeout_seconds(run_dir: RunDir) -> float:
    """Return how long the ranks of a run may take for a checkpoint; 0 where its plan cannot be read."""
    try:
        plan = loads(read_own(run_dir.bundle / "plan.json"))
        return float(plan["launch"]["stop_timeout_seconds"]) or math.inf
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return 0.0


def _last_words(run_dir: RunDir) -> str:
    state = read_state(run_dir.state)
    how = state.exit if state is not None else None
    return how.message if how is not None else "the run was stopped"


def _supervises(run_dir: RunDir, state: RunState) -> bool:
    """Tell whether the recorded process is this run's supervisor: an id in a file alone proves nothing."""
    return supervisor_alive(run_dir, state) and processes.opens(state.supervisor, run_dir.lease)


def _wait(done: Callable[[], bool], patience_seconds: float) -> bool:
    deadline = time.monotonic() + patience_seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_TICK_SECONDS)
    return True
