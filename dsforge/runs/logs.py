"""The output of a run's ranks: all lines, one rank's, and the lines about the first error."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.text import without_escapes
from dsforge.records.run_dir import AttemptDir, RunDir
from dsforge.runs.reading import read_exits, read_reports
from dsforge.runs.registry import state_or_fail

_MARK = re.compile(r"\[rank (\d+)\] ")
_TRACEBACK = "Traceback (most recent call last)"
_ERROR_LINES = 40


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of output; `rank` None for the launcher's own."""

    rank: int | None
    text: str


@dataclass(frozen=True, slots=True)
class RunLogs:
    """What is shown of a run's logs: the first error's lines, then everything in the order of the files."""

    run_id: str
    attempt: int
    metrics: Path
    first_error: tuple[LogLine, ...]
    files: tuple[Path, ...]
    rank: int | None

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines of one rank, or of all ranks and then the launcher; no file is held in memory."""
        for path in self.files:
            for line in _read(path):
                if self.rank is None or line.rank == self.rank:
                    yield line


def read_logs(run_dir: RunDir, *, rank: int | None = None, attempt: int | None = None) -> RunLogs:
    """Return the logs of an attempt, the latest if none is named; DsforgeError without such an attempt."""
    state = state_or_fail(run_dir)
    number = state.attempt if attempt is None else attempt
    directory = run_dir.attempt(number)
    if not directory.path.is_dir():
        raise DsforgeError(
            "DSF223",
            f"run {run_dir.path.name} has no attempt {number}",
            hint=f"there are: {', '.join(map(str, run_dir.attempts())) or 'none'}",
        )
    if rank is not None:
        _check_rank(directory, rank)
    nodes = sorted(directory.path.glob("node-*.log"))
    launcher = [directory.launcher_log] if rank is None and directory.launcher_log.exists() else []
    failed_rank = state.exit.rank if state.exit and number == state.attempt else None
    found = _first_error(directory, nodes, failed_rank)
    return RunLogs(
        run_id=run_dir.path.name,
        attempt=number,
        metrics=directory.metrics,
        first_error=tuple(line for line in found if rank is None or line.rank == rank),
        files=(*nodes, *launcher),
        rank=rank,
    )


def _check_rank(directory: AttemptDir, rank: int) -> None:
    known = {report.rank for report in read_reports(directory)}
    known |= {record.rank for record in read_exits(directory)}
    if rank not in known:
        ranks = sorted(known)
        there = "none has reported" if not ranks else f"there are ranks {ranks[0]} to {ranks[-1]}"
        raise DsforgeError("DSF223", f"this attempt has no rank {rank}", Place(rank=rank), there)


def _first_error(directory: AttemptDir, nodes: list[Path], failed_rank: int | None) -> list[LogLine]:
    exits = read_exits(directory)
    causes = [record for record in exits if record.cause in ("exception", "signal")]
    if failed_rank is not None:
        causes = [record for record in exits if record.rank == failed_rank]
    if causes:
        record = causes[0]
        return [LogLine(record.rank, text) for text in _from_traceback(record.tail)]
    if failed_rank is not None:  # killed together with its wrapper: only the node's log has its words
        own = (line.text for path in nodes for line in _read(path) if line.rank == failed_rank)
        return [LogLine(failed_rank, text) for text in _from_traceback(tuple(deque(own, _ERROR_LINES)))]
    return []


def _from_traceback(tail: tuple[str, ...]) -> tuple[str, ...]:
    for start, text in enumerate(tail):
        if _TRACEBACK in text:
            return tail[start:]
    return tail


def _read(path: Path) -> Iterator[LogLine]:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:
        for raw in stream:
            text = without_escapes(raw.rstrip("\n"))
            match = _MARK.match(text)
            yield LogLine(int(match[1]), text[match.end() :]) if match else LogLine(None, text)
