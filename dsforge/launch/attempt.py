"""Supervises one attempt: starts the launcher, watches the ranks, ends them, finds the cause."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dsforge.base import lease, oom, processes
from dsforge.base.canonical import dump_line
from dsforge.base.exits import ExitCode, ExitKind
from dsforge.base.files import append_line
from dsforge.base.oom import OomWatch
from dsforge.base.processes import ProcessId
from dsforge.base.text import counted, first_line, without_escapes
from dsforge.launch.asking import Asking
from dsforge.launch.cause import STOPPED, Cause, Evidence, LostHost, asked_to_stop, find_cause, with_lines
from dsforge.launch.command import beginning, checkpoint_dir
from dsforge.launch.far import Far
from dsforge.launch.follow import SUPERVISOR, Follower, Item
from dsforge.launch.guard import guarded
from dsforge.launch.launchers import launcher_of
from dsforge.launch.mends import mend_of
from dsforge.launch.program_end import ProgramEnd
from dsforge.launch.reasons import End, reason_of
from dsforge.launch.runner import Runner, start
from dsforge.launch.signals import StopSignals
from dsforge.launch.stop import Stopper
from dsforge.launch.telling import progress_of
from dsforge.launch.types import Command, LaunchRequest, OnEvent, ProgressEvent
from dsforge.launch.watchdog import Watchdog
from dsforge.records.reasons import Reason
from dsforge.records.run_dir import RunDir
from dsforge.records.streams import Event, MetricsLine, WorldReport
from dsforge.records.way_on import find_way_on

_REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
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
        run_dir: RunDir,
        number: int,
        *,
        on_event: OnEvent,
        signals: StopSignals,
        hosts: tuple[str, ...],
    ) -> None:
        self._request = request
        self._plan = request.plan
        self._run_dir = run_dir
        self._number = number
        self._directory = run_dir.attempt(number)
        self._launcher = launcher_of(request.plan)
        self.follower = Follower(request.plan, self._directory)
        self._hosts = hosts
        self._far = Far(self.follower, self._directory, hosts, self._launcher)
        self._on_event = on_event
        self._signals = signals
        self._last_seen: dict[int, float] = {}
        self._vanished: dict[int, float] = {}
        self._memory: dict[int, OomWatch] = {}
        self._asking = Asking(request.plan.launch.stop_timeout_seconds)
        self._runner_code: int | None = None
        self._node_launcher: int | None = None
        self._joined_told = False
        self._program_end = ProgramEnd(request, checkpoint_dir(request, run_dir))
        self._first_asked: float | None = None
        self._watchdog = Watchdog(request.plan, self._directory, self.follower, self._far, self._tell)

    def run(self, command: Command, on_state: Callable[[str, ProcessId], None]) -> Cause | None:
        """Run to the end and return the cause of a failure, None for success; OSError when the disk refuses.

        Its folder is there. Whatever happens, no process of the attempt is left.
        """
        environ = {**self._request.environ, **command.environ}
        # The guard comes before what it guards and leaves after it.
        with lease.hold(self._directory.lease), guarded(environ, self._directory.path) as guard_pid:
            runner = start(command, environ, self._directory.launcher_log)
            run_id = self._run_dir.path.name
            kept = self._launcher.keeper is not None
            stopper = Stopper(
                run_id,
                runner,
                guard_pid,
                self._far,
                lambda: self._signals.at_once,
                kept=kept,
                recall=self._launcher.recall,
            )
            try:
                on_state("running", runner.identity)
                self._tell("started", f"{self._launcher.runner} started (pid {runner.identity.pid})")
                verdict = self._watch(runner, lambda: on_state("stopping", runner.identity))
                if self.follower.succeeded:
                    stopper.finish(_LAUNCHER_END_SECONDS)
                    self._take_news()
                    fault = self._program_end.fault(self.follower)
                    return self._with_reason(fault) if fault is not None else None
                on_state("stopping", runner.identity)
                if verdict is not None:
                    self._tell("stopping", verdict.message)
                stopper.stop(self._wrappers())
                self._take_news()
                return self._with_reason(verdict) if verdict is not None else self._cause(runner)
            finally:
                stopper.kill()
                # Their readers remove them; who was killed before it read has left one.
                self._directory.remove_secrets()
                processes.reap(self._sessions(runner), but=runner.identity.pid)

    def _watch(self, runner: Runner, on_stopping: Callable[[], None]) -> Cause | None:
        """Return when the attempt is over: a cause that dsforge itself sets, or None to look for one."""
        started: float | None = None
        over_at: float | None = None
        while True:
            # Asked before the streams are read: what a dead process wrote is then among the news.
            gone = self._gone()
            self._runner_code = runner.return_code()
            self._take_news()
            for rank in gone:
                if rank not in self.follower.exits:
                    self._vanished.setdefault(rank, self._last_seen[rank])
            if self.follower.succeeded:
                return None
            if started is None and self._is_ready():
                started = time.monotonic()
            if self._is_asked() and not self._asking.begun:
                on_stopping()
                self._begin_to_ask()
            if self._asking.begun:
                self._asking.pass_on(self._wrappers())
                self._far.ask(signal.SIGTERM)
                ended = {*gone, *self.follower.exits}
                all_ended = all(rank in ended for rank in self.follower.reports)
                some_ended = bool(self.follower.exits)
                if self._signals.at_once or self._asking.is_over(some_ended=some_ended, all_ended=all_ended):
                    return None
            elif (cause := self._own_cause(started)) is not None:
                return cause
            if self._broken():
                over_at = over_at or time.monotonic() + _DRAIN_SECONDS
                if time.monotonic() >= over_at:
                    return None
            processes.reap(self._sessions(runner), but=runner.identity.pid)
            time.sleep(_TICK_SECONDS)

    def _gone(self) -> list[int]:
        """Return the ranks whose wrapper has ended; what they broke happened after they were last seen."""
        far, now = self._far.gone(), time.time()
        gone = list(far)
        self._last_seen |= far
        for rank, report in self.follower.reports.items():
            if self._far.is_far(report):
                continue
            if not _wrapper_alive(report):
                gone.append(rank)
                self._last_seen.setdefault(rank, report.time)
            else:
                self._last_seen[rank] = now
        return gone

    def _is_asked(self) -> bool:
        """Tell whether dsforge, its runner or a rank was told to stop; the others do not know of it yet."""
        if self._signals.first is not None or self._runner_request is not None:
            return True
        # Once something broke, launchers tell the ranks that are left to stop.
        asked = [one for one in self.follower.exits.values() if one.stopped_on_request]
        if not asked or self._failed():
            return False
        # On another host it takes its guard a moment to see why a launcher told the ranks that are left.
        self._first_asked = self._first_asked or time.monotonic()
        return not self._far.nodes or time.monotonic() - self._first_asked > _DRAIN_SECONDS

    @property
    def _runner_request(self) -> int | None:
        """The signal that ended the runner, if it is one that asks: the ranks live on and can be asked."""
        number = -(self._runner_code or 0)
        return number if number in _REQUESTS else None

    def _begin_to_ask(self) -> None:
        self._asking.begin()
        limit = self._asking.timeout_seconds
        wait = f", {limit:g} s at most" if limit else ""
        self._tell("stopping", f"stopping: the ranks finish their step and save a checkpoint{wait}")

    def _broken(self) -> bool:
        """Tell whether a rank or a launcher has ended without having been asked to."""
        return self._failed() or (self._runner_code is not None and not self._asking.begun)

    def _failed(self) -> bool:
        failed = [one for one in self.follower.exits.values() if one.code != 0 and not one.stopped_on_request]
        return bool(failed or self._vanished or self._far.lost_nodes)

    def _cause(self, runner: Runner) -> Cause:
        """Return why the attempt ended that did not end well; for one that was stopped, with the way on."""
        stopped = self._stopped(runner) if self._asking.begun else None
        cause = self._with_reason(stopped) if stopped is not None else find_cause(self._evidence(runner))
        if cause.kind not in STOPPED:
            # Ranks whose collective operation is out of time say nothing of the one that they waited for.
            seen = self._watchdog.words if cause.reason is Reason.HUNG else ()
            message = with_lines(cause.message, seen)
            return replace(cause, message=message, hint=mend_of(cause.reason, self._plan))
        metrics = self.follower.last_metrics
        begun = beginning(self._request, self._run_dir)
        way_on = find_way_on(begun, metrics.step if metrics else None)
        message = way_on.after(first_line(cause.message))
        self._record("stopped", message, **way_on.as_dict())
        return replace(cause, message=message)

    def _with_reason(self, cause: Cause) -> Cause:
        """Return a cause that dsforge itself sets with its reason."""
        end = End(cause.kind, signal=cause.signal, lines=cause.tail, met=self.follower.joined)
        return replace(cause, reason=reason_of(end))

    def _stopped(self, runner: Runner) -> Cause | None:
        """Return that dsforge or its runner was told to stop, and what came between; None when a rank was."""
        number = self._signals.first or self._runner_request
        if number is None:
            return None
        if self._launcher.keeper and self._lost_nodes() and number == signal.SIGTERM:
            return None  # so a scheduler ends what is left of a job that has lost a host
        who = "" if self._signals.first else f"{self._launcher.runner} was "
        cause = asked_to_stop(number, self._launcher.notice)
        message = who + cause.message
        if self._signals.at_once:
            message += ", at once"
        elif self._failed():
            message += f", but {first_line(find_cause(self._evidence(runner)).message)}"
        elif self._asking.is_late:
            message += (
                f", but not all was done within launch.stop_timeout, {self._asking.timeout_seconds:g} s"
            )
        return replace(cause, message=message)

    def _is_ready(self) -> bool:
        """Tell whether what will be ranks has been started; where a cluster does it, its launcher says so."""
        line = self._launcher.ready
        return line is None or line in _lines(self._directory.launcher_log.read_bytes())

    def _own_cause(self, started: float | None) -> Cause | None:
        follower, launch = self.follower, self._plan.launch
        if follower.mismatch is not None:
            report, difference = follower.mismatch
            code = int(ExitCode.BEFORE_FIRST_STEP)
            return Cause(ExitKind.WORLD_MISMATCH, code, difference, report.rank, host=report.host)
        now = time.monotonic()
        waited = now - started if started is not None else 0.0
        if not follower.joined and 0 < launch.rendezvous_timeout_seconds < waited:
            silent = ", ".join(map(str, follower.silent_ranks))
            what = f"ranks {silent} did not report" if silent else "the process group did not form"
            return Cause(
                ExitKind.BEFORE_FIRST_STEP,
                int(ExitCode.BEFORE_FIRST_STEP),
                f"{what} within launch.rendezvous_timeout, {launch.rendezvous_timeout_seconds:g} s",
                rank=follower.silent_ranks[0] if silent else None,
            )
        # Before the ranks have joined it is the rendezvous that has a limit.
        return self._watchdog.look() if follower.joined else None

    def _take_news(self) -> None:
        for item in self.follower.poll():
            self._pass_on(item)
        if self.follower.joined and not self.follower.silent_ranks and not self._joined_told:
            self._joined_told = True
            ranks = counted(self._plan.layout.world_size, "rank")
            self._tell("joined", f"every one of {ranks} runs where the plan puts it")

    def _pass_on(self, item: Item) -> None:
        if isinstance(item, WorldReport) and self._node_launcher is None and not self._far.is_far(item):
            parent = processes.parent_of(item.pid)
            is_launcher = parent and self._launcher.on_host in processes.command_of(parent)
            self._node_launcher = parent if is_launcher else None
        if isinstance(item, WorldReport) and not self._far.is_far(item):
            self._memory[item.rank] = oom.watch(item.pid)
        if isinstance(item, MetricsLine):
            self._watchdog.take(item)
        self._on_event(progress_of(item, self._number))

    def _tell(self, name: str, message: str) -> None:
        self._record(name, message)
        self._on_event(ProgressEvent(time.time(), name, message, self._number))

    def _record(self, name: str, message: str, **data: Any) -> None:
        line = Event(time=time.time(), source=SUPERVISOR, name=name, message=message, data=data)
        append_line(self._directory.events, dump_line(line.as_dict()))

    def _wrappers(self) -> list[ProcessId]:
        return [ProcessId(report.pid, report.pid_start) for report in self._near()]

    def _sessions(self, runner: Runner) -> set[int]:
        return {runner.identity.pid, *(report.trainer_pid for report in self._near())}

    def _near(self) -> list[WorldReport]:
        return [report for report in self.follower.reports.values() if not self._far.is_far(report)]

    def _evidence(self, runner: Runner) -> Evidence:
        metrics = self.follower.last_metrics
        return Evidence(
            world_size=self._plan.layout.world_size,
            reports=self.follower.reports,
            exits=self.follower.exits,
            vanished=self._vanished,
            tails={rank: self._tail_of(rank) for rank in self._vanished},
            lost_nodes=self._lost_nodes(),
            runner=self._launcher.runner,
            runner_pid=runner.identity.pid,
            # Afterwards it may have been ended here, for it was slow to see what had happened.
            runner_code=self._runner_code,
            node_launcher=self._launcher.on_host,
            node_launcher_pid=self._node_launcher,
            launcher_log=_lines(self._directory.launcher_log.read_bytes())[-_LOG_LINES:],
            last_step=metrics.step if metrics else None,
            oom_killed=frozenset(rank for rank in self._vanished if self._is_oom_killed(rank)),
            runner_signal=max(0, -(self._runner_code or 0)) if self._launcher.keeper else 0,
        )

    def _is_oom_killed(self, rank: int) -> bool:
        near = self._memory.get(rank)
        return near.has_killed() if near is not None else rank in self.follower.oom_killed

    def _lost_nodes(self) -> dict[int, LostHost]:
        """Return the hosts that are gone, with a scheduler also those of which it, or a death, says so."""
        launcher, reports = self._launcher, self.follower.reports
        if launcher.keeper is None or launcher.lost is None:
            return self._far.lost_nodes
        exits = self.follower.exits.values()
        bereft = {
            reports[one.rank].node for one in exits if one.cause == "parent_died" and one.rank in reports
        }
        what = f"lost {launcher.keeper}, which held its ranks,"
        lost = {node: LostHost(self._hosts[node], what) for node in bereft}
        for line in _lines(self._directory.launcher_log.read_bytes()):
            if (match := launcher.lost.search(line)) and match["host"] in self._hosts:
                lost[self._hosts.index(match["host"])] = LostHost(match["host"], "failed")
        return {**self._far.lost_nodes, **lost}

    def _tail_of(self, rank: int) -> list[str]:
        log = self._directory.log(self.follower.reports[rank].node)
        mark = f"[rank {rank}] "
        lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
        own = [line.removeprefix(mark) for line in lines if line.startswith(mark)][-_LOG_LINES:]
        return [without_escapes(line) for line in own]


def _wrapper_alive(report: WorldReport) -> bool:
    return processes.is_alive(ProcessId(report.pid, report.pid_start))


def _lines(data: bytes) -> list[str]:
    return without_escapes(data.decode("utf-8", "replace")).splitlines()
