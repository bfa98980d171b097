"""Writes the run's metrics and events: rank 0 alone, one whole line at a time."""

from __future__ import annotations

import resource
import time
from typing import Any

import torch

from dsforge.base.canonical import dump_line
from dsforge.base.files import append_line
from dsforge.plan.types import Plan
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import EvalLine, Event, MetricsLine
from dsforge.train.engine_protocol import StepResult
from dsforge.train.sinks.registry import Sink, open_sinks


def memory_peak_bytes(device: torch.device) -> int:
    """Return the most memory this rank has held: of the device, or resident on a CPU."""
    return next(iter(memory_peaks(device).values()))


def memory_peaks(device: torch.device) -> dict[str, int]:
    """Return the most bytes this rank has held: in tensors and by their allocator, or resident on a CPU."""
    if device.type == "cuda":
        return {
            "allocated": torch.cuda.max_memory_allocated(device),
            "reserved": torch.cuda.max_memory_reserved(device),
        }
    return {"resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


class Recorder:
    """The streams of one attempt; on every rank but 0 it writes nothing."""

    def __init__(self, attempt: AttemptDir, plan: Plan, rank: int, device: torch.device) -> None:
        self._attempt = attempt
        self._plan = plan
        self._writes = rank == 0
        self._device = device
        self._sinks: tuple[Sink, ...] = open_sinks(plan.sinks, attempt) if self._writes else ()

    def event(self, name: str, message: str, **data: Any) -> None:
        """Record that something happened."""
        if self._writes:
            line = Event(time=time.time(), source="trainer", name=name, message=message, data=data)
            append_line(self._attempt.events, dump_line(line.as_dict()))

    def metrics(self, step: int, result: StepResult, learning_rate: float, seconds: float) -> None:
        """Record an optimizer step, counted from 1, that took `seconds`."""
        if not self._writes:
            return
        batch, clip = self._plan.batch, self._plan.optimizer.grad_clip
        line = MetricsLine(
            time=time.time(),
            step=step,
            loss=result.loss,
            grad_norm=None if result.skipped else result.grad_norm,
            learning_rate=learning_rate,
            tokens_per_second=batch.global_size * batch.seq_len / seconds,
            step_seconds=seconds,
            memory_bytes=memory_peak_bytes(self._device),
            clipped=clip > 0 and result.grad_norm > clip and not result.skipped,
            first_sample=(step - 1) * batch.global_size,
            last_sample=step * batch.global_size - 1,
            loss_scale=result.loss_scale,
            skipped=result.skipped if result.skipped or result.loss_scale is not None else None,
        )
        self._write(line)

    def evaluation(self, step: int, loss: float, samples: int, seconds: float) -> None:
        """Record a validation after `step` steps that took `seconds`."""
        if self._writes:
            self._write(EvalLine(time=time.time(), step=step, loss=loss, samples=samples, seconds=seconds))

    def _write(self, line: MetricsLine | EvalLine) -> None:
        append_line(self._attempt.metrics, dump_line(line.as_dict()))
        for sink in self._sinks:
            sink.write(line)
