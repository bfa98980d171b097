"""Follows a run that a batch job supervises: tells what it records, passes on requests to stop."""

from __future__ import annotations

import signal
import time

from dsforge.base.batch import BatchError, Job
from dsforge.base.exits import ExitKind, code_of_signal
from dsforge.launch.cause import STOPPED
from dsforge.launch.create import disk_error, vanished
from dsforge.launch.follow import Follower
from dsforge.launch.run import expendable
from dsforge.launch.signals import StopSignals
from dsforge.launch.telling import progress_of
from dsforge.launch.types import OnEvent, ProgressEvent, RunOutcome
from dsforge.plan.types import Plan
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import ENDED_STATES, RunExit, RunState, read_state
from dsforge.runs.jobs import ask, close, job_of

_TICK_SECONDS = 0.3
_CALM_SECONDS = 15.0
"""Between two questions to a scheduler, which answers a whole cluster."""
_EAGER_SECONDS = 1.0
_FRESH_SECONDS = 30.0
"""After a change of the run's state, within which more is to be expected."""
_ASK_SECONDS = 5.0
_SURE_SECONDS = 2.5


def follow_run(run_dir: RunDir, plan: Plan, on_event: OnEvent) -> RunOutcome:
    """Follow a submitted run to its end; DsforgeError when its folder vanishes or cannot be written.

    SIGINT and SIGTERM stop the run after a checkpoint, a second SIGINT or SIGQUIT at once; SIGHUP, the end of
    a terminal, leaves it alone.
    """
    try:
        with StopSignals() as signals:
            return _Onlooker(run_dir, plan, expendable(on_event), signals).follow()
    except OSError as error:
        raise disk_error(run_dir.path, error) from error


class _Onlooker:
    def __init__(self, run_dir: RunDir, plan: Plan, on_event: OnEvent, signals: StopSignals) -> None:
        job = job_of(run_dir)
        assert job is not None, "submitted before"
        self._run_dir, self._plan, self._job = run_dir, plan, job
        self._on_event, self._signals = on_event, signals
        self._followers: list[Follower] = []
        self._restarts_told = 0
        self._found = Job("submitted", "", "waits")
        self._told: tuple[str, str] | None = None
        self._changed = time.monotonic()
        self._looked = -_CALM_SECONDS
        self._next_ask = 0.0
        self._over_since: float | None = None
        self._wanted: str | None = None
        self._is_told = False
        self._state = self._read_state()

    def follow(self) -> RunOutcome:
        self._tell("note", "Ctrl-C stops the run after a checkpoint; when this terminal ends, it goes on")
        while True:
            # Asked before the records are read: what a job that is over has written is then among the news.
            self._look()
            self._state, before = self._read_state(self._state), self._state
            if self._state.state != before.state:
                self._changed = time.monotonic()
            self._take_news()
            if self._is_over():
                return self._end()
            if self._signals.first == signal.SIGHUP:
                return self._leave()
            if self._signals.first is not None:
                self._ask(self._signals.first)
            time.sleep(_TICK_SECONDS)

    def _read_state(self, before: RunState | None = None) -> RunState:
        """Return the run's state, or the one before where a network file system has none at this moment."""
        state = read_state(self._run_dir.state) or before
        if state is None or not self._run_dir.manifest.exists():
            raise vanished(self._run_dir)
        return state

    def _look(self) -> None:
        now = time.monotonic()
        is_eager = (
            now - self._changed < _FRESH_SECONDS
            or self._over_since is not None
            or self._wanted is not None
            or self._state.state in ENDED_STATES
        )
        if now - self._looked < (_EAGER_SECONDS if is_eager else _CALM_SECONDS):
            return
        self._looked = now
        try:
            self._found = self._job.look_up()
        except BatchError as error:
            self._tell_job("is not known to be over", str(error))
            return
        if self._found.waits:
            self._tell_job("waits", self._found.reason)
        elif self._found.at == "runs":
            self._tell_job("runs", "")

    def _is_over(self) -> bool:
        """Tell whether nothing more will come; a job may look ended before it is queued again."""
        now = time.monotonic()
        self._over_since = (self._over_since or now) if self._found.is_over else None
        if self._over_since is None:
            return False
        return self._state.state == "succeeded" or now - self._over_since > _SURE_SECONDS

    def _tell_job(self, what: str, why: str) -> None:
        if self._told != (what, why):
            self._told = (what, why)
            self._tell("note", f"{self._job} {what}" + (f": {why}" if why not in ("", "None") else ""))

    def _take_news(self) -> None:
        while True:
            number = len(self._followers)
            for item in self._followers[-1].poll() if self._followers else ():
                self._on_event(progress_of(item, number))
            for restart in self._state.restarts[self._restarts_told :]:
                self._restarts_told += 1
                self._tell("restart", f"attempt {restart.attempt} starts: {restart.why}")
            following = self._run_dir.attempt(number + 1)
            if not following.path.is_dir():
                return
            self._followers.append(Follower(self._plan, following, looks_on=True))

    def _ask(self, number: int) -> None:
        wanted = "QUIT" if self._signals.at_once else signal.Signals(number).name.removeprefix("SIG")
        if wanted != self._wanted:
            self._wanted, self._is_told, self._next_ask = wanted, False, 0.0
        now = time.monotonic()
        if now < self._next_ask:
            return
        # Again and again: it may be queued, or started, between the look and the word.
        self._next_ask = now + _ASK_SECONDS
        # A second SIGINT would mean at once.
        word = "TERM" if wanted == "INT" and self._is_told else wanted
        if ask(self._run_dir, self._job, self._found, word) and not self._is_told:
            self._is_told = True
            how = "at once" if wanted == "QUIT" else "after a checkpoint; Ctrl-C again stops it at once"
            what = "had not started and is cancelled" if self._found.waits else f"is told to stop {how}"
            self._tell("stopping", f"{self._job} {what}")

    def _end(self) -> RunOutcome:
        self._state = close(self._run_dir, self._state, self._job, self._found, self._signals.first)
        assert self._state.exit is not None, "an ended run has one"
        return self._outcome(self._state.exit)

    def _leave(self) -> RunOutcome:
        message = f"this terminal ended; the run goes on as {self._job}"
        return self._outcome(RunExit(code_of_signal(signal.SIGHUP), ExitKind.INTERRUPTED.value, message))

    def _outcome(self, how: RunExit) -> RunOutcome:
        losses: dict[int, float] = {}
        validation_losses: dict[int, float] = {}
        for follower in self._followers:
            losses |= follower.losses
            validation_losses |= follower.validation_losses
        metrics = [one.last_metrics for one in self._followers if one.last_metrics is not None]
        self._tell("ended", how.message)
        tail = () if how.kind in STOPPED else tuple(line.strip() for line in how.message.splitlines()[1:])
        return RunOutcome(
            run_id=self._run_dir.path.name,
            run_dir=self._run_dir.path,
            attempts=max(1, len(self._followers)),
            exit=how,
            losses=dict(sorted(losses.items())),
            validation_losses=dict(sorted(validation_losses.items())),
            last_metrics=metrics[-1] if metrics else None,
            tail=tail,
        )

    def _tell(self, name: str, message: str) -> None:
        self._on_event(ProgressEvent(time.time(), name, message, len(self._followers)))
