"""What the benchmarks share: the machine's name, programs in turn, medians, one JSON object out."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parent.parent
_ENGINES = ("torch", "deepspeed", "megatron-core")
_CPU_NAMES = "/proc/cpuinfo"

STEADY_FROM = 4
"""Steps before this one warm caches up and are not counted."""

T = TypeVar("T")


def machine() -> dict[str, object]:
    """Return the processor, its cores, the load before the benchmark and the versions."""
    lines = Path(_CPU_NAMES).read_text("utf-8").splitlines() if Path(_CPU_NAMES).exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {
        "cpu": f"{names[0] if names else 'CPU'} ({platform.machine()})",
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in _ENGINES},
    }


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of every contestant: this tree's package, this Python's programs."""
    return {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        **changes,
    }


def run(command: Iterable[str | Path], *, environ: Mapping[str, str], cwd: Path = ROOT) -> str:
    """Run a program to its end and return its standard output; its errors are shown if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env=dict(environ), cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def seconds(command: Iterable[str | Path]) -> float:
    """Return the wall time of one whole process."""
    began = time.perf_counter()
    run(command, environ=environment())
    return time.perf_counter() - began


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return what all processes that a piece of work started and waited for have computed.

    On a busy machine it says more than wall time: what others compute is not in it.
    """
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime


def in_turn(contestants: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Return every contestant's figure of each round; a busy spell of the machine slows all of a round.

    Who goes first changes from round to round.
    """
    figures: dict[str, list[T]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            figures[name].append(contestants[name]())
    return figures


def medians(figures: Mapping[str, list[float]], digits: int) -> dict[str, float]:
    """Return the median of each contestant's rounds."""
    return {name: round(statistics.median(values), digits) for name, values in figures.items()}


def ratio(above: list[float], below: list[float], digits: int = 3) -> float:
    """Return the median over the rounds of one contestant's figure over another's of the same round."""
    return round(statistics.median(_ratios(above, below)), digits)


def spread(above: list[float], below: list[float], digits: int = 3) -> dict[str, float]:
    """Return the median, the least and the largest of these ratios."""
    ratios = _ratios(above, below)
    return {
        "median": ratio(above, below, digits),
        "least": round(min(ratios), digits),
        "largest": round(max(ratios), digits),
    }


def _ratios(above: list[float], below: list[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]


@dataclass(frozen=True)
class Steps:
    """The steps that a contestant wrote down."""

    losses: list[float]
    seconds: float
    """Median of the steady steps."""


def read_steps(path: Path) -> Steps:
    """Return the steps of a file with a line of JSON each."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    times = [line["time"] for line in lines][STEADY_FROM - 1 :]
    steady = statistics.median(later - earlier for earlier, later in pairwise(times))
    return Steps([line["loss"] for line in lines], steady)


def report(benchmark: str, figures: Mapping[str, object], **facts: object) -> None:
    """Print one JSON object."""
    print(json.dumps({"benchmark": benchmark, **figures, **facts}, indent=2), flush=True)
