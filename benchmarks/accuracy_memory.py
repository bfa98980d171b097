"""How far the memory model is from published figures: errors by group, verdicts, and what it cannot say."""

from __future__ import annotations

import statistics
from typing import Any

from occupied import GIB, Occupied

from dsforge.cost.memory import StageMemory

_BOUNDS = {"static": (0.05, 32 / 1024), "peak allocated": (0.08, 0.0), "reserved / nvidia-smi": (0.12, 0.0)}
"""Within what share, or what GiB, a prediction of a group counts as near."""
CONTRADICTED = {
    "oom-bloom-206B-h14336-l82-a128-tp4pp12dp8-mb2-gbs2048-02-28": "a 203B run of the same layout took 67 GB",
}
"""Out-of-memory rows that other rows of their source contradict, and how."""


def scored(rows: list[Occupied]) -> list[dict[str, Any]]:
    """Return each row's prediction, measurement and error, or verdict; `why` where there is none."""
    return [_line(row) for row in rows]


def _line(row: Occupied) -> dict[str, Any]:
    line: dict[str, Any] = {key: row.row[key] for key in ("id", "source", "regime")}
    line["group"] = row.group
    if row.job is None:
        return {**line, "why": row.why}
    stage = row.stage()
    if row.measured is None:
        line |= {"predicted_gib": stage.device / GIB, "capacity_gib": row.capacity / GIB}
        right = row.fits() == (row.group == "fits")
        return {**line, "right": right, "contradicted": CONTRADICTED.get(row.row["id"])}
    predicted = row.predicted()
    share, gib = _BOUNDS[row.group]
    away = abs(predicted - row.measured)
    return {
        **line,
        "predicted_gib": predicted / GIB,
        "measured_gib": row.measured / GIB,
        "error": away / row.measured,
        "near": away <= max(share * row.measured, gib * GIB),
        "components_gib": _components(stage),
    }


def _components(stage: StageMemory) -> dict[str, float]:
    return {name: size / GIB for name, size in stage.components.items() if size}


def summary(lines: list[dict[str, Any]], key: str) -> dict[str, dict[str, float]]:
    """Return by one of the lines' keys and by group: rows, mean and median error, and how many are near."""
    found: dict[str, dict[str, float]] = {}
    for name in sorted({(line["group"], line[key]) for line in lines}):
        own = [line for line in lines if (line["group"], line[key]) == name]
        title = name[0] if key == "group" else f"{name[0]}: {name[1]}"
        errors = [line["error"] for line in own if "error" in line]
        if errors:
            near = sum(line.get("near", False) for line in own)
            found[title] = {
                "rows": len(own),
                "mean": statistics.fmean(errors),
                "median": statistics.median(errors),
                "near": near / len(own),
            }
    return found


def verdicts(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many rows that ran are accepted, and the rows out of memory that are said to fit."""
    ran = [line for line in lines if line["group"] == "fits"]
    out = [line for line in lines if line["group"] == "oom"]
    wrong = [line for line in out if not line.get("right", False)]
    return {
        "fits_rows": len(ran),
        "accepted": sum(line.get("right", False) for line in ran) / max(1, len(ran)),
        "oom_rows": len(out),
        "false_fits": [line["id"] for line in wrong if not line.get("contradicted")],
        "contradicted": {line["id"]: line["contradicted"] for line in wrong if line.get("contradicted")},
    }


def tell(lines: list[dict[str, Any]]) -> None:
    """Print the rows, then the sums."""
    for line in sorted(lines, key=lambda line: line.get("error", 0.0)):
        if "error" in line:
            pair = f"{line['predicted_gib']:10.3f} {line['measured_gib']:10.3f}"
            print(f"{line['error']:6.1%} {pair}  {line['id']}")
        elif not line.get("right", True):
            said = f"{line['predicted_gib']:.1f} of {line['capacity_gib']:.1f} GiB"
            because = f"; {line['contradicted']}" if line["contradicted"] else ""
            print(f"verdict wrong: {line['id']} ({line['group']}): {said}{because}")
    for key in ("regime", "source", "group"):
        print(f"\nmemory by {key:66} rows   mean median   near")
        for name, one in summary(lines, key).items():
            figures = f"{one['rows']:4.0f} {one['mean']:6.1%} {one['median']:6.2%} {one['near']:6.1%}"
            print(f"  {name[:76]:76} {figures}")
    told = verdicts(lines)
    print(
        f"\nfit: {told['accepted']:.1%} of {told['fits_rows']} runs accepted; of {told['oom_rows']} out of "
        f"memory said to fit: {len(told['false_fits'])}, and {len(told['contradicted'])} others contradict"
    )
