"""Whether a run that failed is tried again, and after what wait. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from dsforge.plan.types import Launch
from dsforge.records.reasons import Reason
from dsforge.records.run_state import Restart

LONGEST_WAIT_SECONDS = 60.0
_MOST_FRUITLESS = 3
"""Attempts in a row that end before a step: one may be bad luck, three would be followed by more."""


class Again(Enum):
    """When another attempt may fare better."""

    ALWAYS = auto()
    AFTER_A_STEP = auto()
    """What ends before the first step would end there again."""
    ONCE_A_STEP = auto()
    """The same, and what ends twice at one step would end there again."""
    NEVER = auto()


POLICY = {
    Reason.HARDWARE: Again.ALWAYS,
    Reason.NETWORK: Again.ALWAYS,
    Reason.HOST_LOST: Again.ALWAYS,
    Reason.PREEMPTION: Again.ALWAYS,
    Reason.LAUNCHER: Again.ALWAYS,
    Reason.KILLED: Again.ALWAYS,
    Reason.HUNG: Again.AFTER_A_STEP,
    Reason.PROGRAM: Again.ONCE_A_STEP,
    Reason.UNKNOWN: Again.ONCE_A_STEP,
    Reason.OUT_OF_MEMORY: Again.NEVER,
    Reason.HOST_MEMORY: Again.NEVER,
    Reason.CONFIGURATION: Again.NEVER,
    Reason.ENVIRONMENT: Again.NEVER,
    Reason.NUMERICS: Again.NEVER,
    # What a missing reduction or another seed does, it would do again; a device that errs is not told apart.
    Reason.RANKS_DIFFER: Again.NEVER,
    Reason.STOPPED: Again.NEVER,
}
BLAMES_THE_HOST = (Reason.HARDWARE, Reason.HOST_LOST)
"""Reasons for which a spare takes the place of the host that the first failure was on."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt ended. `step`: the last that the run had made; `saved`: its newest whole checkpoint's.

    `stepped`: whether the attempt itself made a step.
    """

    reason: Reason
    step: int | None
    saved: int | None
    stepped: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether there is another attempt, why not, and how long to wait for it."""

    again: bool
    why_not: str | None = None
    wait_seconds: float = 0.0
    left: int = 0
    """Restarts that are left after this one."""


def decide(launch: Launch, made: Sequence[Restart], failures: Sequence[Failure], now: float) -> Decision:
    """Return what follows the last of a run's failures.

    `made`: the run's restarts. `now`: seconds since the epoch.
    """
    why_not = _hopeless(failures)
    if why_not is not None:
        return Decision(again=False, why_not=f"it would end the same way again: {why_not}")
    window = launch.restart_window_seconds
    counted = [one for one in made if not one.requeued and (not window or now - one.time < window)]
    left = launch.restarts - len(counted)
    if left <= 0:
        within = f" within {window:g} s" if window else ""
        why_not = f"all {launch.restarts} of launch.restarts are used{within}" if launch.restarts else None
        return Decision(again=False, why_not=why_not or "launch.restarts is 0")
    return Decision(
        again=True, wait_seconds=wait_seconds(launch.restart_backoff_seconds, failures), left=left - 1
    )


def wait_seconds(backoff_seconds: float, failures: Sequence[Failure]) -> float:
    """Return the wait before the next attempt: none after the first failure since a checkpoint.

    Then it doubles with each further one.
    """
    in_a_row = 1
    for before, after in zip(reversed(failures[:-1]), reversed(failures[1:]), strict=True):
        if _progress(before, after):
            break
        in_a_row += 1
    if in_a_row == 1:
        return 0.0
    # A run of a thousand restarts would be past what a float holds.
    doublings = min(in_a_row - 2, 32)
    return min(backoff_seconds * 2.0**doublings, LONGEST_WAIT_SECONDS)


def _progress(before: Failure, after: Failure) -> bool:
    return after.saved is not None and (before.saved is None or after.saved > before.saved)


def _at_one_step(one: Failure, other: Failure) -> bool:
    # Rank 0 may or may not have written the step before down.
    near = one.step is not None and other.step is not None and abs(one.step - other.step) <= 1
    return near and one.reason is other.reason


def _hopeless(failures: Sequence[Failure]) -> str | None:
    """Return why another attempt would end as the last one did, or None."""
    last = failures[-1]
    row = POLICY[last.reason]
    what = last.reason.replace("_", " ")
    if row is Again.NEVER:
        return what
    if row is not Again.ALWAYS and last.step is None:
        return f"{what}, before the first step"
    alike = [one for one in failures[:-1] if _at_one_step(one, last)]
    if row is Again.ONCE_A_STEP and alike:
        return f"{what}, after step {last.step} as before"
    fruitless = failures[-_MOST_FRUITLESS:]
    if len(fruitless) == _MOST_FRUITLESS and not any(one.stepped for one in fruitless):
        return f"{what}, and {_MOST_FRUITLESS} attempts in a row made no step"
    return None
