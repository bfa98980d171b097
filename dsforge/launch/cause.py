"""From what an attempt left behind to its first cause. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dsforge.base.exits import ExitCode, ExitKind, code_of_signal
from dsforge.base.processes import signal_name
from dsforge.launch.reasons import End, reason_of
from dsforge.records.reasons import Reason
from dsforge.records.run_state import RunExit
from dsforge.records.streams import ExitRecord, WorldReport

STOPPED = (ExitKind.INTERRUPTED, ExitKind.TERMINATED)
"""Ends that somebody asked for."""
_BEFORE_A_STEP = (ExitKind.RANK_FAILED, ExitKind.RANK_KILLED, ExitKind.LAUNCHER_DIED, ExitKind.HOST_LOST)
_SIGKILL = 9
_NOTICE_SECONDS = 1.0
"""A killed process is noticed up to this much later than it died; what it broke is recorded at once."""
_MESSAGE_LINES = 5
_RETURN_CODE = re.compile(r"exits with return code = (-?[0-9]{1,9})\b")


@dataclass(frozen=True, slots=True)
class LostHost:
    """A host that is gone as a whole, and what is known of it."""

    host: str
    what: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known when an attempt is over. Times in seconds since the epoch.

    `vanished`: ranks whose wrapper was gone without an exit record before anybody was told to stop, and
    when it was last seen alive. `tails`: the last output of those ranks. `lost_nodes`: nodes that are gone as
    a whole. `runner`: what the launcher's program is called. `node_launcher`: what starts a host's ranks, and
    its process where that is known.
    """

    world_size: int
    reports: Mapping[int, WorldReport]
    exits: Mapping[int, ExitRecord]
    vanished: Mapping[int, float]
    tails: Mapping[int, Sequence[str]]
    lost_nodes: Mapping[int, LostHost]
    runner: str
    runner_pid: int
    runner_code: int | None
    node_launcher: str
    node_launcher_pid: int | None
    launcher_log: Sequence[str]
    last_step: int | None
    oom_killed: frozenset[int] = frozenset()
    """Vanished ranks around which the kernel has ended a process for want of memory."""
    runner_signal: int = 0
    """What killed a runner whose ranks a scheduler then kills, before anybody was told to stop; or 0."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt ended. `kind` is the plain cause, whether or not a step was made; `reason` its word."""

    kind: ExitKind
    code: int
    message: str
    rank: int | None = None
    signal: int | None = None
    host: str | None = None
    tail: tuple[str, ...] = ()
    reason: Reason = Reason.UNKNOWN
    hint: str | None = None

    def as_exit(self, *, stepped: bool) -> RunExit:
        """Return the exit of a run that ends by this cause; before the first step the code is 4."""
        kind, code = self.kind, self.code
        if not stepped and kind in _BEFORE_A_STEP:
            kind, code = ExitKind.BEFORE_FIRST_STEP, int(ExitCode.BEFORE_FIRST_STEP)
        return RunExit(
            code=code,
            kind=kind.value,
            message=self.message,
            rank=self.rank,
            signal=self.signal,
            host=self.host,
            reason=self.reason.value,
            hint=self.hint,
        )


def asked_to_stop(number: int, notice: int | None, when: str = "") -> Cause:
    """Return that dsforge itself was asked to stop by a signal; `notice`: a scheduler's, of the job's end."""
    message = f"stopped by {signal_name(number)}{when}"
    if number == notice:
        number, message = signal.SIGTERM, "stopped before the end of the job's time"
    kind = ExitKind.INTERRUPTED if number == signal.SIGINT else ExitKind.TERMINATED
    return Cause(kind, code_of_signal(number), message, signal=number)


def find_cause(evidence: Evidence) -> Cause:
    """Return the first cause: what ended a rank or a launcher, never what only followed from it."""
    cause = _first_cause(evidence)
    end = End(
        cause.kind,
        signal=cause.signal,
        lines=cause.tail,
        launcher_lines=evidence.launcher_log,
        oom_killed=_is_oom_killed(cause.rank, evidence),
    )
    return replace(cause, message=_with_tail(cause.message, cause.tail), reason=reason_of(end))


def _first_cause(evidence: Evidence) -> Cause:
    mismatched = [record for record in evidence.exits.values() if record.cause == "world_mismatch"]
    if mismatched:
        first = min(mismatched, key=lambda record: record.rank)
        return Cause(
            ExitKind.WORLD_MISMATCH,
            int(ExitCode.BEFORE_FIRST_STEP),
            f"rank {first.rank}: {first.message}",
            rank=first.rank,
        )
    own = [(last_seen, rank) for rank, last_seen in evidence.vanished.items()]
    own += [
        ((record.failed_at or record.time) - (_NOTICE_SECONDS if record.signal == _SIGKILL else 0.0), rank)
        for rank, record in evidence.exits.items()
        if record.cause in ("exception", "signal")
    ]
    own += [
        (record.failed_at or record.time, rank)
        for rank, record in evidence.exits.items()
        if record.cause == "parent_died" and _lost_of(rank, evidence) is not None
    ]
    if not evidence.vanished and not evidence.lost_nodes:
        # Who told the others to stop was then the launcher, because of the rank that vanished.
        own += [
            (record.failed_at, rank)
            for rank, record in evidence.exits.items()
            if record.stopped_on_request and record.failed_at is not None
        ]
    if evidence.runner_signal and all(rank in evidence.vanished for _, rank in own):
        who = f"{evidence.runner} (pid {evidence.runner_pid})"
        return _launcher_died(who, evidence.runner_signal, _when(evidence.last_step))
    if own:
        _, rank = min(own)
        return _cause_of_rank(rank, evidence)
    return _cause_outside_ranks(evidence)


def _by(number: int, rank: int, evidence: Evidence) -> str:
    is_oom = number == _SIGKILL and _is_oom_killed(rank, evidence)
    return signal_name(number) + (", the kernel's out-of-memory killer," if is_oom else "")


def _is_oom_killed(rank: int | None, evidence: Evidence) -> bool:
    record = evidence.exits.get(rank) if rank is not None else None
    return record.oom_killed if record is not None else rank in evidence.oom_killed


def _cause_of_rank(rank: int, evidence: Evidence) -> Cause:
    record = evidence.exits.get(rank)
    who = _who(rank, evidence)
    when = _when(evidence.last_step)
    host = _host(rank, evidence)
    # It may have lived on, and have been ended when the rest was.
    went_with_it = rank in evidence.vanished or (record is not None and record.cause == "parent_died")
    if went_with_it and (lost := _lost_of(rank, evidence)) is not None:
        return _host_lost(lost, when, rank)
    if record is None:
        tail = tuple(evidence.tails.get(rank, ()))
        returned = _wrapper_return_code(evidence)
        if returned > 0:
            message = f"{who} ended with code {returned} {when} and could leave no record"
            return Cause(ExitKind.RANK_FAILED, returned, message, rank, None, host, tail)
        return _killed(
            rank, -returned, f"{who} was killed by {_by(-returned, rank, evidence)} {when}", host, tail
        )
    if record.cause == "stopped":
        # A trainer that was told on its own has no wrapper that would know of it.
        message = f"{who} was {record.message}" if record.signal else f"{who} {record.message}"
        return Cause(ExitKind.TERMINATED, int(ExitCode.TERMINATED), message, rank, record.signal, host)
    if record.cause == "signal":
        number = record.signal or _SIGKILL
        message = f"{who} was killed by {_by(number, rank, evidence)} {when}"
        return _killed(rank, number, message, host, record.tail)
    message = f"{who} exited with code {record.code} {when}"
    return Cause(ExitKind.RANK_FAILED, record.code, message, rank, None, host, record.tail)


def _host_lost(lost: LostHost, when: str, rank: int | None = None) -> Cause:
    message = f"host {lost.host} {lost.what} {when}; its ranks count as killed"
    return Cause(ExitKind.HOST_LOST, code_of_signal(_SIGKILL), message, rank, None, lost.host)


def _lost_of(rank: int, evidence: Evidence) -> LostHost | None:
    report = evidence.reports.get(rank)
    return evidence.lost_nodes.get(report.node) if report is not None else None


def _killed(rank: int, number: int, message: str, host: str | None, tail: tuple[str, ...]) -> Cause:
    return Cause(ExitKind.RANK_KILLED, code_of_signal(number), message, rank, number, host, tail)


def _cause_outside_ranks(evidence: Evidence) -> Cause:
    when = _when(evidence.last_step)
    if evidence.lost_nodes:
        return _host_lost(evidence.lost_nodes[min(evidence.lost_nodes)], when)
    code = evidence.runner_code
    if code is not None and code < 0:
        return _launcher_died(f"{evidence.runner} (pid {evidence.runner_pid})", -code, when)
    orphans = [record for record in evidence.exits.values() if record.cause == "parent_died"]
    if orphans:
        pid = evidence.node_launcher_pid
        who = evidence.node_launcher + (f" (pid {pid})" if pid is not None else "")
        # Its parent, the runner, keeps the status to itself; of the usual signals it handles all others.
        return _launcher_died(who, _SIGKILL, when)
    stopped = [record for record in evidence.exits.values() if record.cause in ("stopped", "lease_lost")]
    if stopped:
        first = min(stopped, key=lambda record: record.time)
        number = first.signal or _SIGKILL
        message = f"{_who(first.rank, evidence)} was stopped from outside by {signal_name(number)} {when}"
        return _killed(first.rank, number, message, _host(first.rank, evidence), first.tail)
    ended = [rank for rank in range(evidence.world_size) if rank in evidence.exits]
    missing = evidence.world_size - len(ended)
    ended_how = "was ended, and" if code is None else f"ended with code {code}, but"
    message = (
        f"{evidence.runner} {ended_how} {missing} of {evidence.world_size} ranks left no exit record {when}"
    )
    tail = tuple(evidence.launcher_log[-_MESSAGE_LINES:])
    return Cause(ExitKind.LAUNCHER_DIED, code or int(ExitCode.BEFORE_FIRST_STEP), message, tail=tail)


def _launcher_died(who: str, number: int, when: str) -> Cause:
    message = f"{who} was killed by {signal_name(number)} {when}; all ranks ended with it"
    return Cause(ExitKind.LAUNCHER_DIED, code_of_signal(number), message, signal=number)


def _wrapper_return_code(evidence: Evidence) -> int:
    """Return what the node's launcher says about the first rank that failed; SIGKILL unless it says more.

    It does not say which rank that was: a code that another rank recorded is the other's.
    """
    recorded = {0, *(record.code for record in evidence.exits.values())}
    for line in evidence.launcher_log:
        if (match := _RETURN_CODE.search(line)) and len(evidence.vanished) == 1:
            code = int(match[1])
            if code not in recorded:
                return code
    return -_SIGKILL


def _host(rank: int, evidence: Evidence) -> str | None:
    report = evidence.reports.get(rank)
    return report.host if report else None


def _who(rank: int, evidence: Evidence) -> str:
    host = _host(rank, evidence)
    return f"rank {rank} on host {host}" if host else f"rank {rank}"


def _when(last_step: int | None) -> str:
    return "before the first step" if last_step is None else f"after step {last_step}"


def with_lines(message: str, lines: Sequence[str]) -> str:
    """Return a message with lines under it that say more."""
    return "\n".join([message, *(f"  {line}" for line in lines)])


def _with_tail(message: str, tail: Sequence[str]) -> str:
    return with_lines(message, [line for line in tail if line.strip()][-_MESSAGE_LINES:])
