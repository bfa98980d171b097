"""Tells slow runs from hung ones, and which rank the others wait for; ends what is late for too long."""

from __future__ import annotations

import math
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

_EARLY_SECONDS = 30.0
"""Shorter silences than this are not asked about while the ranks have time left."""
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
        self._silence = 0.0
        """When the silence began that the ranks were asked about last."""
        self._words: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """What the ranks said of the silence that still goes on, nothing where they have not been asked."""
        return self._words if self._silence == self._follower.last_progress else ()

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
        began = self._follower.last_progress
        silent_seconds = time.monotonic() - began
        if self._hang is None and 0 < self._plan.launch.watchdog_seconds < silent_seconds:
            self._slowness = None
            self._tell("inquiry", f"{self._limit}; every rank is asked where it is")
            self._hang = self._ask()
        elif self._hang is None and began != self._silence and self._early_seconds < silent_seconds:
            self._silence, self._words = began, ()
            self._slowness = (self._ask(), f"no progress for {silent_seconds:.0f} s")
        if self._slowness is not None:
            inquiry, words = self._slowness
            if (verdict := inquiry.verdict()) is not None:
                self._slowness, self._words = None, verdict.words
                first, *more = verdict.words
                self._tell("slow", with_lines(f"{words}; {first}", more))
        verdict = self._hang.verdict() if self._hang is not None else None
        return self._cause(verdict) if verdict is not None else None

    @property
    def _early_seconds(self) -> float:
        """Half of the time until a silence is ended, by this limit or that of one collective operation."""
        launch = self._plan.launch
        limits = [one for one in (launch.watchdog_seconds, launch.collective_timeout_seconds) if one > 0]
        return max(_EARLY_SECONDS, min(limits, default=math.inf) / 2)

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
