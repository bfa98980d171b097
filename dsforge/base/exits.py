"""Exit codes and the kinds that explain them, for every command and run record."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """What the process returns; a failed run may also return a rank's own code."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    ENVIRONMENT = 3
    BEFORE_FIRST_STEP = 4
    BUG = 5
    WATCHDOG = 124
    INTERRUPTED = 130
    TERMINATED = 143


class ExitKind(StrEnum):
    """Why a run ended, so that nobody has to guess from a number."""

    OK = "ok"
    FINDINGS = "findings"
    USAGE = "usage"
    ENVIRONMENT = "environment"
    BEFORE_FIRST_STEP = "before_first_step"
    BUG = "bug"
    WATCHDOG = "watchdog"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    RANK_FAILED = "rank_failed"
    RANK_KILLED = "rank_killed"
    LAUNCHER_DIED = "launcher_died"
    HOST_LOST = "host_lost"
    WORLD_MISMATCH = "world_mismatch"


def code_of_signal(signal_number: int) -> int:
    """Return the shell's convention for a process ended by a signal: 128 + N."""
    return 128 + signal_number
