"""Writes docs/reference/accuracy.md: how far predictions are from what others published, source by source.

Run: python benchmarks/accuracy_page.py [--throughput FILE] [--memory FILE] > docs/reference/accuracy.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean

import accuracy_memory
import occupied
from plan_accuracy import by_source, scored, summary
from published import read
from ranking import published_best, sweeps

from dsforge.cost.calibration import calibration
from dsforge.cost.memory.constants import memory_constants

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
_PEERS = (
    ("calculon, its own settings for A100", "27 %", "43 %"),
    ("llm-analysis, its advised efficiency", "27 %", "35 %"),
    ("45 % of the peak, whatever the layout", "19 %", ""),
)
"""Mean errors of step time and peak memory on these sources' rows, measured outside this repository."""
_NEAR = 0.10
_MEASURED = {
    "static": "between steps",
    "allocated": "allocated at the peak",
    "reserved": "reserved",
    "device": "shown by nvidia-smi",
}


def page(throughput: Path, memory: Path | None) -> Iterator[str]:
    """Yield the page's lines."""
    yield "# Accuracy of estimates"
    yield ""
    yield "Made by `python benchmarks/accuracy_page.py`. An error is |predicted / measured - 1| on a run that"
    yield "others published. *Unseen*: mean over sources, each predicted by constants fitted without it."
    yield from _time(throughput)
    yield from _ranking(throughput)
    if memory is not None:
        yield from _memory(memory)
    yield "## Peers"
    yield ""
    yield "On the same sources' rows, measured outside this repository."
    yield from _table(("planner", "step time", "peak memory"), _PEERS)


def _time(path: Path) -> Iterator[str]:
    lines = scored(list(read(path)))
    sources, unseen = by_source(lines), calibration().errors
    yield ""
    yield "## Step time"
    yield from _table(
        ("runs", "rows", "mean", "median", "mean over sources", "unseen"),
        (
            (name, *figures, _percent(sources[name]), _percent(unseen[name]))
            for name, *figures in _rows(summary(lines, "group"))
        ),
    )
    yield "A GPU whose rates nobody measured, by its peaks and another generation's constants:"
    yield f"{_percent(unseen['unmeasured'])} on the rows of those that somebody did."
    yield from _table(("source", "rows", "mean", "median"), _rows(summary(lines, "source")))


def _ranking(path: Path) -> Iterator[str]:
    rows = list(read(path))
    found = sweeps(rows)
    yield "## Choosing among measured layouts"
    yield ""
    yield f"{len(found)} jobs were measured in several layouts (BLOOM's sweeps). Taking the one that is"
    yield f"predicted fastest costs {_percent(fmean(one['regret'] for one in found))} of a step on average,"
    yield f"at most {_percent(max(one['regret'] for one in found))}."
    yield ""
    gaps = [one["gap"] for one in published_best(rows)]
    near = sum(gap <= _NEAR for gap in gaps)
    yield f"Of {len(gaps)} layouts that others published as their best {near} are predicted within"
    yield f"{_percent(_NEAR)} of the fastest that the model finds for the job: mean gap"
    yield f"{_percent(fmean(gaps))}, worst {_percent(max(gaps))}."
    yield "What is left: NeMo publishes Nemotron 22B with four stages, whose last one waits for the head of a"
    yield "large vocabulary, and does not say that TP alone was tried. DeepSeek-V3 on H100 and Qwen3 235B"
    yield "on GB200 are predicted slower in the published layout than they were measured, by a good part of"
    yield "the gap. nanotron's rows have a mean error that is about the gap."
    yield ""


def _memory(path: Path) -> Iterator[str]:
    lines = accuracy_memory.scored(list(occupied.read(path)))
    yield "## Memory"
    yield ""
    yield "*Near*: between steps within 5 % or 32 MiB, at the peak within 8 %, reserved or shown by"
    yield "nvidia-smi within 12 %."
    for name, key in (("measured", "group"), ("measured, source", "source")):
        found = accuracy_memory.summary(lines, key)
        near = (_percent(one["near"]) for one in found.values())
        rows = ((*row, share) for row, share in zip(_rows(found), near, strict=True))
        yield from _table((name, "rows", "mean", "median", "near"), rows)
    unseen = memory_constants().errors
    yield f"Unseen: {', '.join(f'{_percent(one)} {_MEASURED[kind]}' for kind, one in unseen.items())}."
    told = accuracy_memory.verdicts(lines)
    named = ", ".join(f"`{name}` ({why})" for name, why in told["contradicted"].items())
    out = f"{len(told['false_fits'])} of {told['oom_rows']}"
    yield f"Of {told['fits_rows']} runs that fitted {_percent(told['accepted'])} are said to fit, of those"
    yield f"out of memory {out}, not counting what others of its source contradict:"
    yield f"{named or 'nothing'}."
    yield ""


def _rows(found: dict[str, dict[str, float]]) -> Iterator[tuple[str, ...]]:
    for name, one in found.items():
        yield name, f"{one['rows']:.0f}", _percent(one["mean"]), _percent(one["median"])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield ""
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--throughput", type=Path, default=DATA / "throughput.csv")
    parser.add_argument("--memory", type=Path, default=DATA / "memory.csv")
    given = parser.parse_args()
    print("\n".join(page(given.throughput, given.memory if given.memory.exists() else None)), end="")


if __name__ == "__main__":
    main()
