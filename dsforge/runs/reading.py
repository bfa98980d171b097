"""The typed lines of an attempt's streams, in the order in which they are told."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from dsforge.base.files import read_own
from dsforge.records.run_dir import AttemptDir
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

T = TypeVar("T", WorldReport, ExitRecord)


def read_metrics(attempt: AttemptDir) -> tuple[MetricsLine, ...]:
    """Return the metrics lines of an attempt in the order they were written."""
    return tuple(line for line in _lines(attempt.metrics) if isinstance(line, MetricsLine))


def read_validations(attempt: AttemptDir) -> tuple[EvalLine, ...]:
    """Return the validations of an attempt in the order they were made."""
    return tuple(line for line in _lines(attempt.metrics) if isinstance(line, EvalLine))


def read_events(attempt: AttemptDir) -> tuple[Event, ...]:
    """Return the events of an attempt in the order they were written."""
    return tuple(line for line in _lines(attempt.events) if isinstance(line, Event))


def read_reports(attempt: AttemptDir) -> tuple[WorldReport, ...]:
    """Return the world reports of an attempt by rank."""
    return tuple(sorted(_of_ranks(attempt, WorldReport), key=lambda report: report.rank))


def read_exits(attempt: AttemptDir) -> tuple[ExitRecord, ...]:
    """Return the exit records of an attempt by time."""
    return tuple(sorted(_of_ranks(attempt, ExitRecord), key=lambda record: record.failed_at or record.time))


def _of_ranks(attempt: AttemptDir, line_type: type[T]) -> list[T]:
    streams = sorted(attempt.path.glob("ranks-*.jsonl"))
    # Of a run of weeks nearly all lines are signs of life.
    parsed = (parse_line(line) for one in streams for _, line in read_lines(one, kind=line_type.kind()))
    return [line for line in parsed if isinstance(line, line_type)]


def read_hosts(attempt: AttemptDir) -> tuple[str, ...]:
    """Return the hosts of an attempt by node; none where its hostfile cannot be read."""
    try:
        lines = read_own(attempt.hostfile).splitlines()
    except (OSError, ValueError):
        return ()
    return tuple(line.split()[0] for line in lines if line.strip())


def _lines(stream: Path) -> list[Line]:
    parsed = (parse_line(line) for _, line in read_lines(stream))
    return [line for line in parsed if line is not None]
