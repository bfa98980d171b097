"""The output of a run's ranks: all lines, one rank's or node's, and what the ranks that failed said last."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.files import open_own
from dsforge.base.text import without_escapes
from dsforge.records.run_dir import RunDir
from dsforge.records.streams import ExitRecord
from dsforge.runs.failures import Failure, fold, from_traceback
from dsforge.runs.reading import read_exits, read_reports
from dsforge.runs.registry import state_or_fail

_MARK = re.compile(r"\[rank ([0-9]{1,9})\] ")
_ERROR_LINES = 40
_LONGEST_BYTES = 65_536
"""Of a line that is shown; the file has the rest."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of output; `rank` None for the launcher's own."""

    rank: int | None
    text: str


@dataclass(frozen=True, slots=True)
class RunLogs:
    """What is shown of a run's logs: failures, the first one first, then everything in the files' order."""

    run_id: str
    attempt: int
    metrics: Path
    failures: tuple[Failure, ...]
    files: tuple[Path, ...]
    rank: int | None

    @property
    def first_error(self) -> tuple[LogLine, ...]:
        """The lines of the first failure."""
        return tuple(LogLine(one.rank, text) for one in self.failures[:1] for text in one.lines)

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines of one rank, or of all ranks and then the launcher; no file is held in memory."""
        for path in self.files:
            for line in _read(path):
                if self.rank is None or line.rank == self.rank:
                    yield line


def read_logs(
    run_dir: RunDir, *, rank: int | None = None, node: int | None = None, attempt: int | None = None
) -> RunLogs:
    """Return the logs of an attempt, the latest if none is named; DsforgeError without such an attempt."""
    state = state_or_fail(run_dir)
    number = state.attempt if attempt is None else attempt
    directory = run_dir.attempt(number)
    if number not in run_dir.attempts():
        raise DsforgeError(
            "DSF223",
            f"run {run_dir.path.name} has no attempt {number}",
            hint=f"there are: {', '.join(map(str, run_dir.attempts())) or 'none'}",
        )
    reports = {report.rank: report for report in read_reports(directory)}
    exits = read_exits(directory)
    _check("rank", rank, {*reports, *(record.rank for record in exits)})
    _check("node", node, {report.node for report in reports.values()})
    if node is not None:
        exits = tuple(one for one in exits if one.rank in reports and reports[one.rank].node == node)
    logs = sorted(directory.path.glob("node-*.log")) if node is None else [directory.log(node)]
    logs = [path for path in logs if path.exists()]
    failed_rank = state.exit.rank if state.exit and number == state.attempt else None
    if node is not None and failed_rank in reports and reports[failed_rank].node != node:
        failed_rank = None
    hosts = {number: report.host for number, report in reports.items()}
    failures = _failures(exits, hosts, logs, failed_rank)
    if failures and failures[0].rank in reports:
        # The output of the one to look at first is in the first file.
        logs.sort(key=lambda path: path != directory.log(reports[failures[0].rank].node))
    is_whole = rank is None and node is None
    launcher = [directory.launcher_log] if is_whole and directory.launcher_log.exists() else []
    return RunLogs(
        run_id=run_dir.path.name,
        attempt=number,
        metrics=directory.metrics,
        failures=failures if rank is None else tuple(one for one in failures[:1] if one.rank == rank),
        files=(*logs, *launcher),
        rank=rank,
    )


def _check(what: str, number: int | None, known: set[int]) -> None:
    if number is None or number in known:
        return
    place = Place(rank=number) if what == "rank" else None
    there = f"there are {what}s {min(known)} to {max(known)}" if known else "none has reported"
    raise DsforgeError("DSF223", f"this attempt has no {what} {number}", place, there)


def _failures(
    exits: tuple[ExitRecord, ...], hosts: dict[int, str], logs: list[Path], failed_rank: int | None
) -> tuple[Failure, ...]:
    if failed_rank is None:
        return fold(exits, hosts)
    record = next((record for record in exits if record.rank == failed_rank), None)
    if record is not None:
        tail: Sequence[str] = record.tail
    else:  # killed together with its wrapper: only the node's log has its words
        tail = deque(
            (line.text for path in logs for line in _read(path) if line.rank == failed_rank), _ERROR_LINES
        )
    if not tail:
        return fold(exits, hosts)
    return fold(exits, hosts, Failure(failed_rank, hosts.get(failed_rank), from_traceback(tuple(tail))))


def _read(path: Path) -> Iterator[LogLine]:
    with open_own(path) as stream:
        while raw := stream.readline(_LONGEST_BYTES):
            left_out = 0
            if len(raw) == _LONGEST_BYTES:
                rest = raw
                while not rest.endswith(b"\n") and (rest := stream.readline(_LONGEST_BYTES)):
                    left_out += len(rest.rstrip(b"\n"))
            text = without_escapes(raw.decode("utf-8", "replace").rstrip("\n"))
            text += f" [{left_out:,} bytes more]" if left_out else ""
            match = _MARK.match(text)
            yield LogLine(int(match[1]), text[match.end() :]) if match else LogLine(None, text)
