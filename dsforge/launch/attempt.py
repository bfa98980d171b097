"""Supervises one attempt: starts the launcher, watches the ranks, ends them, finds the cause."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from dsforge.base import lease, processes
from dsforge.base.canonical import dump_line
from dsforge.base.exits import ExitCode, ExitKind, code_of_signal
from dsforge.base.files import append_line
from dsforge.base.processes import ProcessId, signal_name
from dsforge.base.text import without_escapes
from dsforge.launch.cause import Cause, Evidence, find_cause
from dsforge.launch.follow import SUPERVISOR, Follower, Item
from dsforge.launch.guard import guarded
from dsforge.launch.launchers import Runner, launcher_of
from dsforge.launch.signals import StopSignals
from dsforge.launch.stop import Stopper
from dsforge.launch.types import Command, LaunchRequest, OnEvent, ProgressEvent
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import EvalLine, Event, ExitRecord, MetricsLine, WorldReport

_TICK_SECONDS = 0.2
_DRAIN_SECONDS = 1.5
"""From the first failure to stopping the rest: the record of an earlier cause may still be on its way."""
_LAUNCHER_END_SECONDS = 15.0
_LOG_LINES = 40


class Attempt:
    """One attempt of a run, from its lease to its cause."""

    def __init__(
        self,
        request: LaunchRequest,
        run_id: str,
        number: int,
        directory: AttemptDir,
        *,
        on_event: OnEvent,
        signals: StopSignals,
    ) -> None:
        self.follower = Follower(request.plan, directory)
        self._request = request
        self._plan = request.plan
        self._run_id = run_id
        self._number = number
        self._directory = directory
        self._on_event = on_event
        self._signals = signals
        self._vanished: dict[int, float] = {}
        self._node_launcher: int | None = None
        self._joined_told = False

    def run(self, command: Command, on_state: Callable[[str, ProcessId], None]) -> Cause | None:
        """Run to the end and return the cause of a failure, None for success; OSError when the disk refuses.

        Whatever happens, no process of the attempt is left.
        """
        self._directory.path.mkdir()
        environ = {**self._request.environ, **command.environ}
        # The guard comes before what it guards and leaves after it.
        with lease.hold(self._directory.lease), guarded(environ, self._directory.path) as guard_pid:
            start = launcher_of(self._plan)
            runner = start(command, environ, self._directory.launcher_log)
            stopper = Stopper(self._run_id, runner, guard_pid, lambda: self._signals.count > 1)
            try:
                on_state("running", runner.identity)
                self._tell("started", f"deepspeed runner started (pid {runner.identity.pid})")
                verdict = self._watch(runner)
                if self.follower.succeeded:
                    stopper.finish(_LAUNCHER_END_SECONDS)
                    return None
                on_state("stopping", runner.identity)
                if verdict is not None:
                    self._tell("stopping", verdict.message)
                stopper.stop(self._wrappers())
                self._take_news()
                return verdict or find_cause(self._evidence(runner))
            finally:
                stopper.kill()
                processes.reap(self._sessions(runner))

    def _watch(self, runner: Runner) -> Cause | None:
        """Return when the attempt is over: a cause that dsforge itself sets, or None to look for one."""
        started = time.monotonic()
        over_at: float | None = None
        while True:
            # Asked before the streams are read: what a dead process wrote is then among the news.
            gone = [rank for rank, report in self.follower.reports.items() if not _wrapper_alive(report)]
            runner_ended = runner.return_code() is not None
            self._take_news()
            for rank in gone:
                if rank not in self.follower.exits:
                    self._vanished.setdefault(rank, time.time())
            if self.follower.succeeded:
                return None
            if (cause := self._own_cause(started)) is not None:
                return cause
            if self.follower.failed or self._vanished or runner_ended:
                over_at = over_at or time.monotonic() + _DRAIN_SECONDS
                if time.monotonic() >= over_at:
                    return None
            processes.reap(self._sessions(runner))
            time.sleep(_TICK_SECONDS)

    def _own_cause(self, started: float) -> Cause | None:
        follower, launch = self.follower, self._plan.launch
        if self._signals.first is not None:
            return _interrupted(self._signals.first)
        if follower.mismatch is not None:
            report, difference = follower.mismatch
            code = int(ExitCode.BEFORE_FIRST_STEP)
            return Cause(ExitKind.WORLD_MISMATCH, code, difference, report.rank, host=report.host)
        now = time.monotonic()
        if not follower.joined and 0 < launch.rendezvous_timeout_seconds < now - started:
            silent = ", ".join(map(str, follower.silent_ranks))
            what = f"ranks {silent} did not report" if silent else "the process group did not form"
            return Cause(
                ExitKind.BEFORE_FIRST_STEP,
                int(ExitCode.BEFORE_FIRST_STEP),
                f"{what} within launch.rendezvous_timeout, {launch.rendezvous_timeout_seconds:g} s",
                rank=follower.silent_ranks[0] if silent else None,
            )
        # Before the ranks have joined it is the rendezvous that has a limit.
        if follower.joined and 0 < launch.watchdog_seconds < now - follower.last_progress:
            step = follower.last_metrics.step if follower.last_metrics else None
            return Cause(
                ExitKind.WATCHDOG,
                int(ExitCode.WATCHDOG),
                f"no progress for launch.watchdog, {launch.watchdog_seconds:g} s; "
                + ("no step was made" if step is None else f"the last step was {step}"),
            )
        return None

    def _take_news(self) -> None:
        for item in self.follower.poll():
            self._pass_on(item)
        if self.follower.joined and not self.follower.silent_ranks and not self._joined_told:
            self._joined_told = True
            self._tell("joined", f"all {self._plan.layout.world_size} ranks run where the plan puts them")

    def _pass_on(self, item: Item) -> None:
        match item:
            case WorldReport():
                if self._node_launcher is None and (parent := processes.parent_of(item.pid)) is not None:
                    is_launcher = "deepspeed.launcher.launch" in processes.command_of(parent)
                    self._node_launcher = parent if is_launcher else None
                place = f"host {item.host}, pid {item.trainer_pid}"
                self._emit("rank_up", f"rank {item.rank} started on {place}", rank=item.rank)
            case ExitRecord():
                words = item.message or "ended well"
                self._emit("rank_ended", f"rank {item.rank}: {words}", rank=item.rank)
            case MetricsLine():
                self._emit("step", f"step {item.step}: loss {item.loss:.4f}", metrics=item)
            case EvalLine():
                told = f"validation after step {item.step}: loss {item.loss:.4f} over {item.samples} samples"
                self._emit("validated", told)
            case Event():
                self._emit("event", item.message, event=item)

    def _emit(
        self,
        name: str,
        message: str,
        *,
        rank: int | None = None,
        metrics: MetricsLine | None = None,
        event: Event | None = None,
    ) -> None:
        self._on_event(ProgressEvent(time.time(), name, message, self._number, rank, metrics, event))

    def _tell(self, name: str, message: str) -> None:
        line = Event(time=time.time(), source=SUPERVISOR, name=name, message=message, data={})
        append_line(self._directory.events, dump_line(line.as_dict()))
        self._emit(name, message)

    def _wrappers(self) -> list[ProcessId]:
        return [ProcessId(report.pid, report.pid_start) for report in self.follower.reports.values()]

    def _sessions(self, runner: Runner) -> set[int]:
        return {runner.identity.pid, *(report.trainer_pid for report in self.follower.reports.values())}

    def _evidence(self, runner: Runner) -> Evidence:
        metrics = self.follower.last_metrics
        return Evidence(
            world_size=self._plan.layout.world_size,
            reports=self.follower.reports,
            exits=self.follower.exits,
            vanished=self._vanished,
            tails={rank: self._tail_of(rank) for rank in self._vanished},
            runner_pid=runner.identity.pid,
            runner_code=runner.return_code(),
            node_launcher_pid=self._node_launcher,
            launcher_log=_last_lines(self._directory.launcher_log.read_bytes()),
            last_step=metrics.step if metrics else None,
        )

    def _tail_of(self, rank: int) -> list[str]:
        log = self._directory.log(self.follower.reports[rank].node)
        mark = f"[rank {rank}] "
        lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
        own = [line.removeprefix(mark) for line in lines if line.startswith(mark)][-_LOG_LINES:]
        return [without_escapes(line) for line in own]


def _wrapper_alive(report: WorldReport) -> bool:
    return processes.is_alive(ProcessId(report.pid, report.pid_start))


def _interrupted(number: int) -> Cause:
    kind = ExitKind.INTERRUPTED if number == signal.SIGINT else ExitKind.TERMINATED
    return Cause(kind, code_of_signal(number), f"stopped by {signal_name(number)}", signal=number)


def _last_lines(data: bytes) -> list[str]:
    return without_escapes(data.decode("utf-8", "replace")).splitlines()[-_LOG_LINES:]
