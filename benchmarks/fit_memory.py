"""The fit of the memory model's constants, for `benchmarks/fit_catalog.py --memory FILE`.

Constants belong to an engine, six at most; none to a source or a row. What an engine's rows do not show keeps
the value that it starts from.
"""

from __future__ import annotations

import collections
import copy
import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
from occupied import Occupied, read
from ruamel.yaml import YAML
from scipy.optimize import least_squares

from dsforge.catalog.yaml_tables import table
from dsforge.cost.memory.constants import MemoryConstants, build

FITTED: dict[str, tuple[str, ...]] = {
    "megatron-core": ("group_mib",),
    "megatron-deepspeed": ("reserve", "context_mib"),
    "deepspeed": ("hidden_bytes", "logit_bytes", "pool_mib"),
    "fsdp2": ("hidden_bytes", "logit_bytes", "reserve"),
    "fsdp": ("logit_bytes",),
    "nanotron": ("hidden_bytes", "logit_bytes", "reserve", "pool_mib"),
}
_CONSTANTS = ("hidden_bytes", "logit_bytes", "reserve", "pool_mib", "context_mib", "group_mib")
PRIORS = dict(zip(_CONSTANTS, (0.0, 10.0, 0.1, 0.0, 1500.0, 2.0), strict=True))
"""Where a fit starts, and what an engine has that nobody measured."""
_UNITS = dict(zip(_CONSTANTS, (8.0, 8.0, 0.2, 4000.0, 4000.0, 4.0), strict=True))
"""How far a constant goes before it weighs as much as an error of `_PRIOR`."""
_PRIOR = 0.01
_ROBUST = {"megatron-core": 0.002}
"""Errors beyond which weigh less: Megatron's own figures are exact, the others rounded."""
_ROBUST_ELSE = 0.04
_ROOM = 0.96
"""Of a GPU's memory, that a job which ran took at most."""
_HEADER = """\
# Constants of the memory model, fitted by `benchmarks/fit_catalog.py --memory FILE --leave-out` to published
# figures; dsforge/cost/memory/constants.py says what an engine's mean. Under "alike": engines of the
# calibration that hold what another does. Under "errors": mean relative errors, over sources that a fit had
# not seen, of what is allocated between steps (static) and at the peak, reserved by PyTorch, and shown by
# nvidia-smi (device).
"""


def fitted(rows: list[Occupied], start: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of the file with each engine's constants fitted to its own measurements."""
    constants = copy.deepcopy(start)
    for engine, keys in FITTED.items():
        constants["engines"][engine].update({key: PRIORS[key] for key in keys})
        own = [row for row in rows if row.job is not None and row.group != "oom" and row.job.engine == engine]
        if own:
            _fit(own, constants, engine, keys)
    return constants


def _fit(rows: list[Occupied], constants: dict[str, Any], engine: str, keys: tuple[str, ...]) -> None:
    first = np.array([PRIORS[key] for key in keys])
    units = np.array([_UNITS[key] for key in keys])

    def away(row: Occupied, built: MemoryConstants) -> float:
        if row.measured:
            return float(np.log(row.predicted(built) / row.measured))
        # That it ran tells an upper bound.
        return max(0.0, float(np.log(row.stage(built).device / (_ROOM * row.capacity))))

    def residuals(values: np.ndarray) -> np.ndarray:
        constants["engines"][engine].update(zip(keys, map(float, values), strict=True))
        built = build(constants)
        return np.concatenate([[away(row, built) for row in rows], _PRIOR * (values - first) / units])

    best = np.maximum(first, 1e-3 * units)
    for loss in ("soft_l1", "cauchy"):
        found = least_squares(
            residuals,
            best,
            loss=loss,
            f_scale=_ROBUST.get(engine, _ROBUST_ELSE),
            bounds=(0, np.inf),
            x_scale=units,
            diff_step=1e-4,
        )
        best = np.maximum(found.x, 1e-3 * units)
    values = [
        float(f"{value if value > unit / 100 else 0.0:.3g}") for value, unit in zip(best, units, strict=True)
    ]
    constants["engines"][engine].update(zip(keys, values, strict=True))


def left_out(rows: list[Occupied], start: dict[str, Any]) -> dict[str, float]:
    """Return each figure's mean error over sources that the fit had not seen."""
    errors: dict[str, list[float]] = collections.defaultdict(list)
    measured = [row for row in rows if row.job is not None and row.measured]
    for source in sorted({row.row["source"] for row in measured}):
        others = [row for row in rows if row.row["source"] != source]
        built = build(fitted(others, start))
        own = [row for row in measured if row.row["source"] == source]
        away = [abs(row.predicted(built) / float(row.measured or 1) - 1) for row in own]
        for row, one in zip(own, away, strict=True):
            errors[row.kind].append(one)
        print(f"  {np.mean(away):.3f} {len(own):4} {source}")
    means = {kind: float(f"{np.mean(every):.2g}") for kind, every in sorted(errors.items())}
    print("left out: " + ", ".join(f"{kind} {mean:.1%}" for kind, mean in means.items()))
    return means


def fit(memory: Path, out: Path | None, *, leave_out: bool) -> None:
    """Fit, tell and write."""
    rows, start = list(read(memory)), table("memory")
    constants = fitted(rows, start)
    built = build(constants)
    errors: dict[str, list[float]] = collections.defaultdict(list)
    for row in rows:
        if row.job is not None and row.measured:
            errors[row.group].append(abs(row.predicted(built) / row.measured - 1))
    for group, every in errors.items():
        print(f"{group}: {len(every)} rows, mean {np.mean(every):.4f}, median {np.median(every):.4f}")
    print(f"{sum(map(len, FITTED.values()))} constants, at most {max(map(len, FITTED.values()))} an engine")
    if leave_out:
        constants["errors"] = left_out(rows, start)
    if out:
        constants["fitted"] = {"date": dt.datetime.now(dt.UTC).date().isoformat(), "rows": len(rows)}
        with out.open("w", encoding="utf-8") as file:
            yaml = YAML(typ="safe", pure=True)
            yaml.default_flow_style = False
            file.write(_HEADER)
            yaml.dump(constants, file)
