"""From how an attempt ended to its reason. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dsforge.base.exits import ExitKind
from dsforge.base.text import first_line
from dsforge.records.reasons import Reason
from dsforge.records.streams import ExitRecord

ReadLines = Callable[[Sequence[str]], Reason | None]
"""What the last output of a rank says of its end; None where it says nothing."""

_FROM_OUTSIDE = (
    *(signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
)
"""Signals that no fault of a program raises."""
_LIMITS = (signal.SIGXCPU, signal.SIGXFSZ)
_BY_KIND = {
    ExitKind.HOST_LOST: Reason.HOST_LOST,
    ExitKind.WATCHDOG: Reason.HUNG,
    ExitKind.WORLD_MISMATCH: Reason.CONFIGURATION,
    ExitKind.INTERRUPTED: Reason.STOPPED,
    ExitKind.TERMINATED: Reason.STOPPED,
    ExitKind.ENVIRONMENT: Reason.ENVIRONMENT,
}
_KINDS = {
    "exception": ExitKind.RANK_FAILED,
    "signal": ExitKind.RANK_KILLED,
    "world_mismatch": ExitKind.WORLD_MISMATCH,
}
"""Ends of a rank that are its own."""
_OOM_KILLED = re.compile(r"\bOut Of Memory$|\boom[-_]kill event\b|\bOOM Killed\b", re.IGNORECASE)
_PREEMPTED = re.compile(r"\bDUE TO PREEMPTION\b")
_CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
_RANK_MARK = re.compile(r"^\[rank ?[0-9]{1,9}\]:? ?")
"""PyTorch puts it before each line of an exception that nobody catches."""
_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?(?P<name>_?[A-Z]\w*)(?:: .*)?$")
_NAMED = re.compile(r"(?:Error|Exception)$")
_TERMINATED = re.compile(r"^terminate called after throwing an instance of '|^  what\(\):  ")
_TOLD = re.compile(r"^error\[(?P<code>DSF[0-9]{3})\]: ")
_USAGE = re.compile(r"^\S+: error: (?:unrecognized|argument |the following|ambiguous)")
_WORDS: tuple[tuple[Reason, re.Pattern[str]], ...] = (
    (
        Reason.OUT_OF_MEMORY,
        re.compile(
            r"\bOutOfMemoryError\b|\b(?:CUDA|HIP|XPU)(?: error:)? out of memory|CUBLAS_STATUS_ALLOC_FAILED"
            r"|cudaErrorMemoryAllocation"
        ),
    ),
    (
        Reason.HOST_MEMORY,
        re.compile(
            r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b|DefaultCPUAllocator|\bbad_alloc\b|\[Errno 12\]"
            r"|Cannot allocate memory|insufficient shared memory"
        ),
    ),
    (
        Reason.HARDWARE,
        re.compile(
            r"\bECC error|ECCUncorrectable|fallen off the bus|[Hh]ardware stack error|[Nn]v[Ll]ink error"
            r"|\[Errno 5\]"
        ),
    ),
    (
        Reason.HUNG,
        re.compile(r"Watchdog caught collective operation timeout|Timed out waiting [0-9]+ms"),
    ),
    (
        Reason.NETWORK,
        re.compile(
            r"\bDist(?:Network|Store|Backend)Error\b|\b(?:Connection\w*|BrokenPipe)Error\b|\bgaierror\b"
            r"|Connection (?:closed|reset|refused)|\bNCCL error\b|No route to host"
            r"|\[Errno (?:101|103|104|110|111|113)\]"
        ),
    ),
    (
        Reason.NUMERICS,
        re.compile(
            r"^FloatingPointError\b|\bfound NaN in\b|[Ll]oss scale already at minimum|\bis not finite\b"
        ),
    ),
    (
        Reason.ENVIRONMENT,
        re.compile(
            r"^(?:ModuleNotFound|Import|FileNotFound|Permission)Error\b|\[Errno (?:2|13|24|28|30|122)\]"
            r"|cannot open shared object"
        ),
    ),
)
_OF_CODES = {
    "DSF350": Reason.NUMERICS,
    "DSF310": Reason.NETWORK,
    **dict.fromkeys(("DSF807", "DSF808", "DSF810"), Reason.RANKS_DIFFER),
    "DSF809": Reason.PROGRAM,
    **dict.fromkeys(
        ("DSF301", "DSF302", "DSF306", "DSF312", "DSF320", "DSF330", "DSF339"), Reason.ENVIRONMENT
    ),
}
"""Errors of our trainers that are not the recipe's."""


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended, as far as it is known.

    `kind`: the plain cause, whether or not a step was made. `lines`: the last output of the first rank that
    ended, without marks. `launcher_lines`: that of the launcher. `oom_killed`: the kernel ended a process
    there for want of memory. `met`: whether the ranks had met.
    """

    kind: ExitKind
    signal: int | None = None
    lines: Sequence[str] = ()
    launcher_lines: Sequence[str] = ()
    oom_killed: bool = False
    met: bool = True


def reason_in(lines: Sequence[str]) -> Reason | None:
    """Return the reason in a rank's last output: its last exception, and those that it was raised from."""
    plain = [_RANK_MARK.sub("", line) for line in lines]
    for line in reversed(plain):
        if (told := _TOLD.match(line)) is not None:
            return _OF_CODES.get(told["code"], Reason.CONFIGURATION)
    raised = _raised(plain)
    for line in (*raised, *(line for line in plain if _TERMINATED.match(line))):
        for reason, words in _WORDS:
            if words.search(line):
                return reason
    if raised:
        return Reason.PROGRAM
    return Reason.CONFIGURATION if any(map(_USAGE.match, plain)) else None


def reason_of(end: End, read_lines: ReadLines = reason_in) -> Reason:
    """Return why an attempt ended; `read_lines` reads output, for the programs that it knows."""
    if any(map(_PREEMPTED.search, end.launcher_lines)):
        return Reason.PREEMPTION
    if end.kind in _BY_KIND:
        return _BY_KIND[end.kind]
    if end.kind is ExitKind.BEFORE_FIRST_STEP and not end.met:
        return Reason.NETWORK
    return _by_signal(end) or _by_output(end, read_lines)


def reason_of_rank(record: ExitRecord) -> Reason | None:
    """Return why one rank ended, None where it ended well."""
    if record.code == 0:
        return None
    if record.cause not in _KINDS:
        return Reason.STOPPED  # along with others, or because somebody asked for it
    kind = _KINDS[record.cause]
    return reason_of(End(kind, signal=record.signal, lines=record.tail, oom_killed=record.oom_killed))


def _by_signal(end: End) -> Reason | None:
    is_oom = end.oom_killed or any(map(_OOM_KILLED.search, end.launcher_lines))
    if end.signal == signal.SIGKILL and is_oom:
        return Reason.HOST_MEMORY
    if end.kind is ExitKind.LAUNCHER_DIED and end.signal is not None:
        return Reason.LAUNCHER
    return Reason.KILLED if end.signal in _FROM_OUTSIDE else None


def _by_output(end: End, read_lines: ReadLines) -> Reason:
    found = read_lines(end.lines)
    if end.oom_killed and found in (None, Reason.PROGRAM):
        return Reason.HOST_MEMORY  # of a worker of the program, which then failed
    if found is None and end.signal in _LIMITS:
        return Reason.ENVIRONMENT
    return found or (Reason.LAUNCHER if end.kind is ExitKind.LAUNCHER_DIED else Reason.PROGRAM)


def last_words(lines: Sequence[str]) -> str | None:
    """Return the line that says what ended a rank, of its last exception or error; None without one."""
    plain = [_RANK_MARK.sub("", line) for line in lines]
    told = [line for line in plain if _TOLD.match(line) or _TERMINATED.match(line)]
    found = [*told[-1:], *_raised(plain)[:1]]
    return first_line(found[0]) if found else None


def _raised(lines: Sequence[str]) -> list[str]:
    """Return the exceptions that a rank's output ends with, the last first, then what it was raised from."""
    chain: list[str] = []
    linked = True
    for before, line in reversed(list(pairwise(["", *lines]))):
        # A name of another kind stands under the last line of its traceback.
        is_named = (match := _RAISED.match(line)) is not None and _NAMED.search(match["name"])
        if match is not None and (is_named or before.startswith("  ")):
            if not linked:
                break
            chain.append(line)
            linked = False
        linked = linked or line.startswith(_CHAINS)
    return chain
