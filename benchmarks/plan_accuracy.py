"""How far the planner is from published measurements.

Run: python benchmarks/plan_accuracy.py --throughput FILE [--memory FILE] [--json] [--no-best]. Rows with
scorable = 1 count; one that cannot be predicted is a miss, with the reason. An error is
|predicted / measured - 1|.
Memory is compared like with like: between steps, at the peak, reserved by PyTorch or shown by nvidia-smi, of
the rank that was measured; of rows that only say that a job ran or ran out of memory, the verdict counts.
"""

from __future__ import annotations

import argparse
import collections
import json
import statistics
from pathlib import Path
from typing import Any

import accuracy_memory
import occupied
from published import Measured, read
from ranking import ranking, tell


def scored(rows: list[Measured]) -> list[dict[str, Any]]:
    """Return each row's prediction, measurement and error; `why` where there is none."""
    found = []
    for row in rows:
        line: dict[str, Any] = {key: row.row[key] for key in ("id", "source", "regime")}
        if row.job is None:
            found.append({**line, "why": row.why})
            continue
        predicted = row.predicted()
        figures = {"predicted_seconds": predicted, "measured_seconds": row.seconds}
        error = abs(predicted / row.seconds - 1)
        found.append({**line, "group": row.group, **figures, "error": error})
    return found


def summary(lines: list[dict[str, Any]], key: str) -> dict[str, dict[str, float]]:
    """Return count, mean and median error by one of the lines' keys."""
    errors: dict[str, list[float]] = collections.defaultdict(list)
    for line in lines:
        if "error" in line:
            errors[line[key]].append(line["error"])
    return {
        name: {"rows": len(own), "mean": statistics.fmean(own), "median": statistics.median(own)}
        for name, own in sorted(errors.items())
    }


def by_source(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Return for each group the mean over its sources' mean errors."""
    groups: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for line in lines:
        if "error" in line:
            groups[line["group"]].append(line)
    return {
        group: statistics.fmean(one["mean"] for one in summary(own, "source").values())
        for group, own in sorted(groups.items())
    }


def _table(title: str, rows: dict[str, dict[str, float]]) -> None:
    print(f"\n{title:66} rows   mean median")
    for name, one in rows.items():
        print(f"  {name[:64]:64} {one['rows']:4.0f} {one['mean']:6.1%} {one['median']:6.1%}")


def main() -> None:
    """Score the files that are given."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--throughput", type=Path)
    parser.add_argument("--memory", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--no-best", action="store_true", help="leave out the search around published best layouts (seconds)"
    )
    given = parser.parse_args()
    rows = list(read(given.throughput)) if given.throughput else []
    lines, ranked = scored(rows), ranking(rows, best=not given.no_best)
    memory = accuracy_memory.scored(list(occupied.read(given.memory))) if given.memory else []
    every = lines + memory
    covered = sum("why" not in line for line in every)
    told = {
        "schema_version": 1,
        "rows": len(every),
        "predicted": covered,
        "groups": summary(lines, "group"),
        "by_source": by_source(lines),
        "sources": summary(lines, "source"),
        "regimes": summary(lines, "regime"),
        "ranking": ranked,
        "lines": lines,
    }
    if given.memory:
        told["memory"] = {
            **{f"{key}s": accuracy_memory.summary(memory, key) for key in ("group", "source", "regime")},
            "verdicts": accuracy_memory.verdicts(memory),
            "lines": memory,
        }
    if given.json:
        print(json.dumps(told, indent=2, sort_keys=True))
        return
    for line in sorted(lines, key=lambda line: line.get("error", 0.0)):
        if "error" in line:
            pair = f"{line['predicted_seconds']:10.3f} {line['measured_seconds']:10.3f}"
            print(f"{line['error']:6.1%} {pair}  {line['id']}")
    for why, count in collections.Counter(line["why"] for line in every if "why" in line).items():
        print(f"not predicted: {count} rows: {why}")
    if memory:
        accuracy_memory.tell(memory)
    if not lines:
        print(f"coverage: {covered} of {len(every)} rows")
        return
    _table("regime", told["regimes"])
    _table("source", told["sources"])
    _table("group", told["groups"])
    print(
        "\nmean over sources: "
        + ", ".join(f"{group} {mean:.1%}" for group, mean in told["by_source"].items())
    )
    tell(ranked)
    print(f"coverage: {covered} of {len(every)} rows")


if __name__ == "__main__":
    main()
