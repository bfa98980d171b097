"""Turns an external program's log lines into the run's metrics, validations and events."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterable
from typing import Any

from dsforge.base.canonical import dump_line
from dsforge.base.files import append_line
from dsforge.records.program import ProgramFile
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import EvalLine, Event, MetricsLine

_STAND_IN = re.compile(
    r"^dsforge: (?:a stand-in serves the import of|the CPU is the device; stand-ins serve) (?P<name>.+)$"
)


class LogReader:
    """Reads the lines of one rank: rank 0 tells of the start, the rank that prints metrics of the steps."""

    def __init__(self, program: ProgramFile, attempt: AttemptDir, rank: int) -> None:
        self._program = program
        self._attempt = attempt
        self._reads = rank == program.metrics_rank
        self._first = rank == 0
        self._patterns = {name: re.compile(pattern) for name, pattern in program.patterns.items()}
        # Programs tell of their start on rank 0, whichever rank prints metrics.
        self._tells_joined = self._first and "joined" in self._patterns
        self._last: tuple[float, int] | None = None
        """When the step before was printed, and which; None where what happened since is more than steps."""
        self._joined = self._told_step = False

    def start(self) -> None:
        """Tell that the program runs, where nothing it prints will show that its ranks have met."""
        if "joined" not in self._patterns and self._reads:
            self._join("the program started; when its ranks meet, it does not say")

    def end(self) -> None:
        """Tell of a program that ended well without a step: some end so when they find their data unfit."""
        if self._reads and not self._told_step:
            with contextlib.suppress(OSError):
                self._event("no_step", "the program ended well, and told of no step: its log says why")

    def take(self, lines: Iterable[str]) -> None:
        """Record what the lines say; a full disk must not end a run that still trains."""
        with contextlib.suppress(OSError):
            for line in lines:
                self._take(line)

    def _take(self, line: str) -> None:
        if self._first and (stand_in := _STAND_IN.match(line)):
            self._event("stand_in", line.removeprefix("dsforge: "), module=stand_in["name"])
        if self._tells_joined and not self._joined and self._patterns["joined"].search(line):
            self._join("the program's ranks have met")
        if not self._reads:
            return
        if match := self._patterns["step"].search(line):
            self._told_step = True
            self._step(match.groupdict())
        elif match := self._patterns["validation"].search(line):
            self._validation(match.groupdict())

    def _step(self, found: dict[str, str | None]) -> None:
        step, loss = int(found["step"] or 0), _number(found, "loss")
        seconds = self._seconds(step, _number(found, "step_milliseconds"))
        if loss is None and (_number(found, "skipped") or 0) > 0:
            self._event("skipped", f"step {step} was skipped: its gradients overflowed", step=step)
            return
        if loss is None or not math.isfinite(loss):
            self._not_finite(f"the loss of step {step}", found, step)
            return
        line = MetricsLine(
            time=time.time(),
            step=step,
            loss=loss,
            grad_norm=_number(found, "grad_norm"),
            learning_rate=_number(found, "learning_rate"),
            tokens_per_second=self._program.tokens_per_step / seconds if seconds else None,
            step_seconds=seconds,
            memory_bytes=None,
        )
        append_line(self._attempt.metrics, dump_line(line.as_dict()))

    def _seconds(self, step: int, milliseconds: float | None) -> float | None:
        """Return a step's seconds: as printed, else by the clock since the step before, else None."""
        now, before = time.monotonic(), self._last
        self._last = (now, step)
        if milliseconds is not None:
            return milliseconds / 1000
        if before is None or step <= before[1]:
            return None
        return (now - before[0]) / (step - before[1])

    def _validation(self, found: dict[str, str | None]) -> None:
        self._last = None
        step, loss = int(found["step"] or 0), _number(found, "loss")
        if loss is None or not math.isfinite(loss):
            self._not_finite(f"the validation loss of step {step}", found, step)
        else:
            samples = self._program.eval_samples
            line = EvalLine(time=time.time(), step=step, loss=loss, samples=samples, seconds=None)
            append_line(self._attempt.metrics, dump_line(line.as_dict()))

    def _not_finite(self, what: str, found: dict[str, str | None], step: int) -> None:
        # Megatron leaves a loss that is not a positive number out of its line.
        value = found.get("loss") or "no positive number"
        self._event("not_finite", f"{what} is {value}", step=step)

    def _join(self, message: str) -> None:
        self._joined = True
        self._event("joined", message)

    def _event(self, name: str, message: str, **data: Any) -> None:
        line = Event(time=time.time(), source="trainer", name=name, message=message, data=data)
        append_line(self._attempt.events, dump_line(line.as_dict()))


def _number(found: dict[str, str | None], name: str) -> float | None:
    text = found.get(name)
    with contextlib.suppress(ValueError):
        return float(text) if text is not None else None
    return None
