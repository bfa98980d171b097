"""`launch_run`: from a request to the outcome of a run, with its restarts."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from dataclasses import replace
from functools import partial

from dsforge.base import lease, prctl, processes
from dsforge.base.canonical import dump_line
from dsforge.base.exits import ExitCode, ExitKind
from dsforge.base.files import append_line, reserved
from dsforge.base.text import counted
from dsforge.launch import machine
from dsforge.launch.attempt import Attempt
from dsforge.launch.cause import STOPPED, Cause, asked_to_stop
from dsforge.launch.command import beginning, build_command, describe_launch
from dsforge.launch.create import create_run, disk_error, vanished
from dsforge.launch.dry_run import tell_starts
from dsforge.launch.follow import SUPERVISOR
from dsforge.launch.hosts import check_hosts, refuse
from dsforge.launch.launchers import launcher_of
from dsforge.launch.prebuild import prebuild
from dsforge.launch.preflight import Preflight, look
from dsforge.launch.program import missing_tools, unknown_revision
from dsforge.launch.requeued import outcome_of, requeued_run
from dsforge.launch.restarts import Decision, Failure, decide
from dsforge.launch.signals import StopSignals
from dsforge.launch.stand_in import AttemptHosts, faults
from dsforge.launch.types import LaunchDescription, LaunchRequest, OnEvent, ProgressEvent, RunOutcome
from dsforge.records.checkpoint_lock import check_free
from dsforge.records.reasons import Reason
from dsforge.records.run_dir import AttemptDir, RunDir
from dsforge.records.run_state import QUEUED, Restart, RunExit, RunState, read_state, write_state
from dsforge.records.streams import Event, MetricsLine
from dsforge.records.way_on import find_way_on


def launch_run(
    request: LaunchRequest, on_event: OnEvent, *, hosts_known: bool = False, goes_on: bool = False
) -> RunOutcome:
    """Start a run and supervise it to its end; no process of it is left.

    Hosts that are reached over ssh are looked at first, unless they are known to be well. `goes_on`: in a job
    that Slurm has queued again, go on in the run that it began.

    An OSError or ValueError of `on_event` loses what it would have told, nothing else. DsforgeError when this
    machine cannot run the plan or the run directory cannot be written.
    """
    request = with_absolute_paths(request)
    on_event = expendable(on_event)
    found = _prepare(request, on_event, hosts_known=hosts_known)
    begun = requeued_run(request) if goes_on else None
    if begun is not None:
        state = read_state(begun.state)
        if state is not None and state.state == "succeeded":
            return outcome_of(begun, state)
        on_event(
            ProgressEvent(time.time(), "note", f"the job was queued again: run {begun.path.name} goes on")
        )
    with StopSignals(launcher_of(request.plan).notice) as signals:
        if begun is not None:
            return _supervise(_Run(request, begun, found, on_event, signals, read_state(begun.state)))
        return _supervise(_Run(request, create_run(request), found, on_event, signals))


def go_on(request: LaunchRequest, run_dir: RunDir, on_event: OnEvent) -> RunOutcome:
    """As `launch_run`, for a run whose folder is there: in a batch job, which may be started again.

    The run goes on with a new attempt. A job that is out of time leaves it queued where the plan has it queue
    again.
    """
    on_event = expendable(on_event)
    found = _prepare(request, on_event)
    with StopSignals(launcher_of(request.plan).notice) as signals:
        run = _Run(request, run_dir, found, on_event, signals, read_state(run_dir.state))
        run.queues_again = _requeues(request)
        return _supervise(run)


def _prepare(request: LaunchRequest, on_event: OnEvent, *, hosts_known: bool = False) -> Preflight:
    found = look(request)
    if found.refusals:
        raise found.refusals[0]
    if request.plan.checkpoint.dir is not None:
        # Now, and not among the refusals: a job may be submitted that waits for the run that saves there.
        check_free(request.recipe_root / request.plan.checkpoint.dir)
    launcher = launcher_of(request.plan)
    if launcher.asks is not None:
        launcher.asks(request)
    if launcher.ssh is not None and not hosts_known:
        found = _check_hosts(request, found, on_event)
    if launcher.software:
        prebuild(request, found, on_event)
    if request.plan.external is not None:
        for code, look_at in (("DSF216", unknown_revision), ("DSF217", missing_tools)):
            told = look_at(request.plan.external, request.recipe_root)
            if told is not None:
                on_event(ProgressEvent(time.time(), "note", f"warning[{code}]: {told}"))
    return found


def _supervise(run: _Run) -> RunOutcome:
    prctl.adopt_orphans()
    try:
        with lease.hold(run.run_dir.lease):
            return run.run()
    except OSError as error:
        if not run.run_dir.manifest.exists():
            raise vanished(run.run_dir) from error
        raise disk_error(run.run_dir.path, error) from error
    finally:
        prctl.adopt_orphans(adopt=False)


def describe_run(request: LaunchRequest) -> LaunchDescription:
    """Return what `launch_run` would start and write, and why it would not start here, touching nothing."""
    request = with_absolute_paths(request)
    found = look(request)
    described = describe_launch(
        request,
        bash=found.bash,
        deepspeed=found.deepspeed,
        ops_dir=found.ops_dir,
        python_path=machine.python_path(request.environ),
        refusals=found.refusals,
    )
    return tell_starts(described, request, found)


def with_absolute_paths(request: LaunchRequest) -> LaunchRequest:
    """Return a request that means the same from any working directory."""
    return replace(
        request, runs_root=request.runs_root.absolute(), recipe_root=request.recipe_root.absolute()
    )


def expendable(on_event: OnEvent) -> OnEvent:
    """Return a listener whose broken terminal or full disk does not end the run."""

    def tell(event: ProgressEvent) -> None:
        with contextlib.suppress(OSError, ValueError):
            on_event(event)

    return tell


def _check_hosts(request: LaunchRequest, found: Preflight, on_event: OnEvent) -> Preflight:
    """Refuse hosts that are not ready, and leave out spares that are not."""
    begun = time.monotonic()
    check = check_hosts(request, (*found.hosts, *found.spares))
    ill = faults(check)
    if any(one.place is None or one.place.host not in found.spares for one in check.errors):
        refuse(check)
    for one in check.findings:
        on_event(ProgressEvent(time.time(), "note", f"warning[{one.code}]: {one.message} ({one.place})"))
    spares = tuple(host for host in found.spares if host not in ill)
    ready = counted(len(found.hosts), "host") + (
        f" and {counted(len(spares), 'spare')}" if found.spares else ""
    )
    told = f"ready: {ready}, asked in {time.monotonic() - begun:.1f} s"
    on_event(ProgressEvent(time.time(), "note", told))
    return replace(found, spares=spares)


def _requeues(request: LaunchRequest) -> bool:
    job = request.plan.launch.slurm
    return job is not None and job.requeue


class _Run:
    """One run with its state file and attempts."""

    def __init__(
        self,
        request: LaunchRequest,
        run_dir: RunDir,
        found: Preflight,
        on_event: OnEvent,
        signals: StopSignals,
        before: RunState | None = None,
    ) -> None:
        """Take what the run is; `before`: its state as an earlier job of it, or who submitted it, left it."""
        self.run_dir = run_dir
        self._request = request
        self._found = found
        self._on_event = on_event
        self._signals = signals
        self._losses: dict[int, float] = {}
        self._validation_losses: dict[int, float] = {}
        self._last_metrics: MetricsLine | None = None
        self._failures: list[Failure] = []
        self._hosts = AttemptHosts(request, run_dir, found)
        self._stepped: MetricsLine | None = None
        supervisor = processes.identify(os.getpid())
        assert supervisor is not None, "this process runs"
        self.queues_again = False
        """Whether the job is to be queued again when its time is up."""
        self._state = RunState(
            run_id=run_dir.path.name,
            name=request.plan.name,
            state="starting",
            attempt=max(run_dir.attempts(), default=0) + 1,
            host=socket.gethostname(),
            boot_id=processes.boot_id(),
            supervisor=supervisor,
            started_time=before.started_time if before is not None else time.time(),
            restarts=before.restarts if before is not None else (),
            trainer=request.plan.trainer,
        )
        if before is not None and self._state.attempt > 1:
            self._add_requeue(self._state.attempt, before)

    def run(self) -> RunOutcome:
        """Run attempts until one succeeds or no restart is left; OSError when the disk refuses."""
        self._save()
        try:
            with reserved(self.run_dir.reserve):
                return self._run()
        except BaseException as error:
            self._abandon(error)
            raise

    def _run(self) -> RunOutcome:
        self._emit("created", f"run {self._state.run_id} in {self.run_dir.path}")
        while True:
            cause = self._attempt()
            if cause is None:
                return self._end(None)
            decision = self._decide(cause)
            if not decision.again:
                return self._end(cause, decision.why_not)
            if not self._restart(cause, decision):
                return self._end(self._stopped())

    def _attempt(self) -> Cause | None:
        number = self._state.attempt
        self._stepped = None
        found = self._found
        assert found.bash is not None, "refused before"
        directory = self.run_dir.attempt(number)
        directory.path.mkdir()
        if number > 1:
            cause = self._hosts.choose(directory, partial(self._tell, directory))
            self._request = self._hosts.request
            if cause is not None:
                return cause
            if self._signals.first is not None:
                return self._stopped()
        self._hosts.write(directory)
        environ = {**self._request.environ, **self._request.extra_environ}
        port, why = machine.rendezvous_port(environ, here=launcher_of(self._request.plan).here)
        if why is not None:
            self._emit("note", why)
        command = build_command(
            self._request,
            self.run_dir,
            number,
            bundle=self._hosts.bundle,
            bash=found.bash,
            deepspeed=found.deepspeed,
            master_port=str(port),
            ops_dir=found.ops_dir,
            python_path=machine.python_path(self._request.environ),
        )
        attempt = Attempt(
            self._request,
            self.run_dir,
            number,
            on_event=self._on_event,
            signals=self._signals,
            hosts=self._hosts.roster.hosts,
        )
        try:
            return attempt.run(command, lambda word, launcher: self._save(state=word, launcher=launcher))
        finally:
            self._losses |= attempt.follower.losses
            self._stepped = attempt.follower.last_metrics
            self._validation_losses |= attempt.follower.validation_losses
            self._last_metrics = self._stepped or self._last_metrics

    def _decide(self, cause: Cause) -> Decision:
        if self._signals.first is not None:
            return Decision(again=False)
        saved = find_way_on(beginning(self._request, self.run_dir), None).step
        step = self._stepped.step if self._stepped is not None else saved
        self._failures.append(Failure(cause.reason, step, saved, stepped=self._stepped is not None))
        return decide(self._request.plan.launch, self._state.restarts, self._failures, time.time())

    def _restart(self, cause: Cause, decision: Decision) -> bool:
        """Begin the next attempt after a wait; False when somebody asked for the run's end meanwhile."""
        number, seconds = self._state.attempt + 1, decision.wait_seconds
        why = cause.message.splitlines()[0]
        self._save(state="starting", launcher=None)
        after = f" in {seconds:g} s" if seconds else ""
        self._emit(
            "restart", f"attempt {number} starts{after}, {counted(decision.left, 'restart')} left: {why}"
        )
        if not self._signals.wait(seconds):
            return False
        restart = Restart(number, time.time(), why, reason=cause.reason.value)
        self._save(attempt=number, restarts=(*self._state.restarts, restart))
        self._hosts.blame(cause)
        return True

    def _stopped(self) -> Cause:
        """Return that somebody asked for the end while the run waited for its next attempt."""
        number, notice = self._signals.first, launcher_of(self._request.plan).notice
        assert number is not None, "asked before"
        cause = asked_to_stop(number, notice, " while it waited for its next attempt")
        last = self._last_metrics.step if self._last_metrics is not None else None
        way_on = find_way_on(beginning(self._request, self.run_dir), last)
        return replace(cause, message=way_on.after(cause.message), reason=Reason.STOPPED)

    def _add_requeue(self, attempt: int, before: RunState) -> None:
        """Say why a job starts again, unless the one before it has said so."""
        if any(restart.attempt == attempt for restart in before.restarts):
            return
        why = before.exit.message.splitlines()[0] if before.exit else "its supervisor did not live to say why"
        again = Restart(attempt, time.time(), f"the job was queued again; {why}", requeued=True)
        self._state = replace(self._state, restarts=(*before.restarts, again))

    def _end(self, cause: Cause | None, not_restarted: str | None = None) -> RunOutcome:
        if cause is None:
            how, word = RunExit(int(ExitCode.OK), ExitKind.OK.value, "every rank ended well"), "succeeded"
        else:
            how = cause.as_exit(stepped=self._last_metrics is not None)
            how = replace(how, not_restarted=not_restarted)
            word = "stopped" if cause.kind in STOPPED else "failed"
        if self._is_out_of_time and word == "stopped":
            again = Restart(self._state.attempt + 1, time.time(), how.message.splitlines()[0], requeued=True)
            self._save(state=QUEUED, launcher=None, restarts=(*self._state.restarts, again))
        else:
            self._save(state=word, exit=how, ended_time=time.time())
        self._emit("ended", how.message)
        return RunOutcome(
            run_id=self._state.run_id,
            run_dir=self.run_dir.path,
            attempts=self._state.attempt,
            exit=how,
            losses=dict(sorted(self._losses.items())),
            validation_losses=dict(sorted(self._validation_losses.items())),
            last_metrics=self._last_metrics,
            tail=cause.tail if cause else (),
        )

    @property
    def _is_out_of_time(self) -> bool:
        """Tell whether the job's time is up and it is to queue again, and nobody wants the run to end."""
        notice = launcher_of(self._request.plan).notice
        is_told = notice is not None and self._signals.first == notice
        return self.queues_again and is_told and not self._signals.at_once

    def _abandon(self, error: BaseException) -> None:
        kind, code = ExitKind.BUG, ExitCode.BUG
        if isinstance(error, OSError):
            kind, code = ExitKind.ENVIRONMENT, ExitCode.ENVIRONMENT
        how = RunExit(int(code), kind.value, f"the supervisor failed: {error!r}")
        try:
            self._save(state="failed", exit=how, ended_time=time.time())
        except OSError:
            return  # the disk that refused once; the supervisor's death marks the run as lost

    def _save(self, **changes: object) -> None:
        self._state = replace(self._state, **changes)  # type: ignore[arg-type]  # names are RunState's own
        if not self.run_dir.manifest.exists():
            # Writing would make the folder anew, with nothing in it but this file.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.run_dir.path))
        write_state(self.run_dir.state, self._state)

    def _tell(self, directory: AttemptDir, name: str, message: str) -> None:
        line = Event(time=time.time(), source=SUPERVISOR, name=name, message=message, data={})
        append_line(directory.events, dump_line(line.as_dict()))
        self._emit(name, message)

    def _emit(self, name: str, message: str) -> None:
        self._on_event(ProgressEvent(time.time(), name, message, self._state.attempt))
