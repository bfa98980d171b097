"""A small run on two nodes, and what its ranks wrote down."""

from __future__ import annotations

import time
from pathlib import Path

from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import Line, parse_line, read_lines
from tests.support.recipes import SMALL

TWO_NODES = (
    SMALL.replace("nodes: 1, gpus_per_node: 8", "nodes: 2, gpus_per_node: 1")
    .replace("{tp: 2, pp: 2, dp: 2, zero: 1}", "{dp: 2}")
    .replace("steps: 30", "steps: 4")
)

MOST_SECONDS = 30.0
"""What is promised. Most faults take a tenth to a half of it; a cut network shows only after 15 to 25 s."""
EVERYTHING_DOWN_SECONDS = 120.0
"""Where cores may be busy; what hangs would never end."""


def records_of(folder: Path) -> list[Line | None]:
    """Return what both nodes' ranks wrote in the first attempt that was started by hand in a folder."""
    attempt = AttemptDir(folder / "dsforge-run" / "attempt-1")
    streams = [attempt.rank_stream(node) for node in (0, 1)]
    return [parse_line(line) for stream in streams if stream.exists() for _, line in read_lines(stream)]


def trainer_of(attempt: str, rank: int) -> Path:
    """Return the /proc folder of a rank's trainer in an attempt, on whatever host, once it is there."""
    deadline = time.monotonic() + EVERYTHING_DOWN_SECONDS
    while not (found := _trainers_of(attempt, rank)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    (one,) = found
    return one


def _trainers_of(attempt: str, rank: int) -> list[Path]:
    marks = {f"DSFORGE_ATTEMPT_DIR={attempt}".encode(), f"RANK={rank}".encode()}
    marked = [path for path in Path("/proc").glob("[0-9]*") if marks <= _variables(path)]
    # So do the rank's wrapper, a host's guard, and what a trainer starts: it is what the wrapper started.
    wrapped = [path for path in marked if b"dsforge.rank.main" in _words(parent_of(path))]
    return [path for path in wrapped if b"dsforge.rank." not in _words(path)]


def parent_of(process: Path) -> Path:
    """Return the /proc folder of a process's parent."""
    return process.with_name((process / "stat").read_text().rpartition(")")[2].split()[1])


def marked(name: str, value: str) -> list[Path]:
    """Return the /proc folders of all processes, on any host, that were started with a variable."""
    wanted = f"{name}={value}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(process)
        except OSError:
            continue
    return found


def gone_within(run_id: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while marked("DSFORGE_RUN_ID", run_id):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _words(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _variables(process: Path) -> set[bytes]:
    try:
        return set((process / "environ").read_bytes().split(b"\0"))
    except OSError:
        return set()
