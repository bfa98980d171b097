"""Tells slow runs from hung ones, and which rank the others wait for; ends what is late for too long."""

from __future__ import annotations

import time
from collections.abc import Callable

from dsforge.base.exits import ExitCode, ExitKind
from dsforge.launch.cause import Cause, with_lines
from dsforge.launch.far import Far
from dsforge.launch.follow import Follower
from dsforge.launch.inquiry import Inquiry
from dsforge.launch.lag import Verdict
from dsforge.launch.pace import Pace
from dsforge.plan.types import Plan
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import MetricsLine

_CALM_SECONDS = 600.0
"""Between two inquiries into slow steps: each writes down where every rank is."""


class Watchdog:
    """Watches the steps of an attempt; `tell` records an event, by name, and shows it."""

    def __init__(
        self, plan: Plan, attempt: AttemptDir, follower: Follower, far: Far, tell: Callable[[str, str], None]
    ) -> None:
        self._plan = plan
        self._attempt = attempt
        self._follower = follower
        self._far = far
        self._tell = tell
        self._pace = Pace()
        self._slowness: tuple[Inquiry, str] | None = None
        self._next_inquiry = 0.0
        self._hang: Inquiry | None = None

    def take(self, step: MetricsLine) -> None:
        """Take a step that was made."""
        usual = self._pace.usual_seconds
        if step.step_seconds is None or not self._pace.take(step.step_seconds) or usual is None:
            return
        if not self._pace.is_slow:
            self._tell("eased", f"steps take {step.step_seconds:.3g} s again, since step {step.step}")
            return
        words = f"steps take {step.step_seconds:.3g} s at step {step.step}, and took {usual:.3g} s before"
        if time.monotonic() < self._next_inquiry:
            self._tell("slow", words)
            return
        self._next_inquiry = time.monotonic() + _CALM_SECONDS
        self._slowness = (self._ask(), words)

    def look(self) -> Cause | None:
        """Return what ends the attempt because nothing moved for launch.watchdog, with who is to blame."""
        limit_seconds = self._plan.launch.watchdog_seconds
        if self._hang is None and 0 < limit_seconds < time.monotonic() - self._follower.last_progress:
            self._slowness = None
            self._tell("inquiry", f"{self._limit}; every rank is asked where it is")
            self._hang = self._ask()
        if self._slowness is not None:
            inquiry, words = self._slowness
            if (verdict := inquiry.verdict()) is not None:
                self._slowness = None
                first, *more = verdict.words
                self._tell("slow", with_lines(f"{words}; {first}", more))
        verdict = self._hang.verdict() if self._hang is not None else None
        return self._cause(verdict) if verdict is not None else None

    def _ask(self) -> Inquiry:
        on_gpus = self._plan.accelerator == "cuda"
        return Inquiry(self._attempt, self._follower, self._far, on_gpus=on_gpus)

    @property
    def _limit(self) -> str:
        return f"no progress for launch.watchdog, {self._plan.launch.watchdog_seconds:g} s"

    def _cause(self, verdict: Verdict) -> Cause:
        metrics = self._follower.last_metrics
        made = f"the last step was {metrics.step}" if metrics else "no step was made"
        what = "slow, not hung" if verdict.is_slow else "hung"
        first, *more = verdict.words
        message = with_lines(f"{self._limit}; {made}; {what}: {first}", more)
        report = self._follower.reports.get(verdict.rank) if verdict.rank is not None else None
        host = report.host if report is not None else None
        return Cause(ExitKind.WATCHDOG, int(ExitCode.WATCHDOG), message, verdict.rank, host=host)
