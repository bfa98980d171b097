"""What one run was and did: manifest, state, attempts, and a summary of its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dsforge.base.canonical import loads
from dsforge.records.run_dir import AttemptDir, RunDir
from dsforge.records.run_manifest import RunManifest, read_run_manifest
from dsforge.records.run_state import RunState
from dsforge.records.streams import (
    EvalLine,
    Event,
    ExitRecord,
    Line,
    MetricsLine,
    WorldReport,
    parse_line,
    read_lines,
)
from dsforge.runs.registry import RunSummary, state_or_fail, summarise

_DEGREES = ("tp", "pp", "dp", "zero", "world_size")


@dataclass(frozen=True, slots=True)
class MetricsSummary:
    """Training in figures. The first step of an attempt, which warms up, is left out of the medians."""

    steps: int
    first_step: int
    last_step: int
    first_loss: float
    last_loss: float
    median_step_seconds: float
    median_tokens_per_second: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class ValidationSummary:
    """The validations of a run: how many, the last and the best."""

    evaluations: int
    samples: int
    last_step: int
    last_loss: float
    best_step: int
    best_loss: float


@dataclass(frozen=True, slots=True)
class AttemptDetails:
    """One attempt: ranks as they reported, how they ended, and what happened."""

    number: int
    reports: tuple[WorldReport, ...]
    exits: tuple[ExitRecord, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class RunDetails:
    """Everything recorded of a run; `metrics` None before the first step, `validation` before the first one.

    `layout`: tp, pp, dp, zero and world_size of its plan; None when its bundle cannot be read.
    """

    summary: RunSummary
    state: RunState
    manifest: RunManifest | None
    attempts: tuple[AttemptDetails, ...]
    metrics: MetricsSummary | None
    validation: ValidationSummary | None
    layout: dict[str, int] | None


def show_run(run_dir: RunDir) -> RunDetails:
    """Return a run's details; DsforgeError when it has no readable state."""
    state = state_or_fail(run_dir)
    numbers = run_dir.attempts()
    return RunDetails(
        summary=summarise(run_dir),
        state=state,
        manifest=read_run_manifest(run_dir.manifest),
        attempts=tuple(_attempt(number, run_dir.attempt(number)) for number in numbers),
        metrics=summarise_metrics([read_metrics(run_dir.attempt(number)) for number in numbers]),
        validation=summarise_validations([read_validations(run_dir.attempt(number)) for number in numbers]),
        layout=_layout(run_dir.bundle / "plan.json"),
    )


def _layout(plan: Path) -> dict[str, int] | None:
    try:
        layout = loads(plan.read_text("utf-8"))["layout"]
        return {name: int(layout[name]) for name in _DEGREES}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def read_metrics(attempt: AttemptDir) -> tuple[MetricsLine, ...]:
    """Return the metrics lines of an attempt in the order they were written."""
    return tuple(line for line in _lines(attempt.metrics) if isinstance(line, MetricsLine))


def read_validations(attempt: AttemptDir) -> tuple[EvalLine, ...]:
    """Return the validations of an attempt in the order they were made."""
    return tuple(line for line in _lines(attempt.metrics) if isinstance(line, EvalLine))


def read_reports(attempt: AttemptDir) -> tuple[WorldReport, ...]:
    """Return the world reports of an attempt by rank."""
    reports = [line for line in _rank_lines(attempt) if isinstance(line, WorldReport)]
    return tuple(sorted(reports, key=lambda report: report.rank))


def read_exits(attempt: AttemptDir) -> tuple[ExitRecord, ...]:
    """Return the exit records of an attempt by time."""
    exits = [line for line in _rank_lines(attempt) if isinstance(line, ExitRecord)]
    return tuple(sorted(exits, key=lambda record: record.failed_at or record.time))


def summarise_metrics(attempts: list[tuple[MetricsLine, ...]]) -> MetricsSummary | None:
    """Return the figures of a run from its attempts; a repeated step counts once, as it was last."""
    by_step = {line.step: line for lines in attempts for line in lines}
    if not by_step:
        return None
    ordered = [by_step[step] for step in sorted(by_step)]
    warm = [line for lines in attempts for line in lines[1:]] or ordered
    return MetricsSummary(
        steps=len(ordered),
        first_step=ordered[0].step,
        last_step=ordered[-1].step,
        first_loss=ordered[0].loss,
        last_loss=ordered[-1].loss,
        median_step_seconds=median(line.step_seconds for line in warm),
        median_tokens_per_second=median(line.tokens_per_second for line in warm),
        peak_memory_bytes=max(line.memory_bytes for line in ordered),
    )


def summarise_validations(attempts: list[tuple[EvalLine, ...]]) -> ValidationSummary | None:
    """Return the figures of a run's validations; one that was repeated counts once, as it was last."""
    by_step = {line.step: line for lines in attempts for line in lines}
    if not by_step:
        return None
    last = by_step[max(by_step)]
    best = min(by_step.values(), key=lambda line: (line.loss, line.step))
    return ValidationSummary(len(by_step), last.samples, last.step, last.loss, best.step, best.loss)


def _attempt(number: int, attempt: AttemptDir) -> AttemptDetails:
    return AttemptDetails(
        number=number,
        reports=read_reports(attempt),
        exits=read_exits(attempt),
        events=tuple(line for line in _lines(attempt.events) if isinstance(line, Event)),
    )


def _rank_lines(attempt: AttemptDir) -> list[Line]:
    return [line for stream in sorted(attempt.path.glob("ranks-*.jsonl")) for line in _lines(stream)]


def _lines(stream: Path) -> list[Line]:
    parsed = (parse_line(line) for _, line in read_lines(stream))
    return [line for line in parsed if line is not None]
