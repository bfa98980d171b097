"""Fits the constants of the memory model to published measurements and writes memory.yaml.

Run: python benchmarks/fit_catalog.py --memory FILE [--out FILE] [--leave-out]. Constants belong to an engine,
six at most; none to a source or a row. What an engine's rows do not show keeps the value it starts from.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from occupied import Occupied
from scipy.optimize import least_squares

from dsforge.cost.memory.constants import MemoryConstants, build

FITTED: dict[str, tuple[str, ...]] = {
    "megatron-core": ("group_mib",),
    "megatron-deepspeed": ("reserve", "context_mib"),
    "deepspeed": ("hidden_bytes", "logit_bytes", "reserve", "pool_mib"),
    "fsdp2": ("hidden_bytes", "logit_bytes", "reserve"),
    "fsdp": ("logit_bytes",),
    "nanotron": ("hidden_bytes", "logit_bytes", "reserve", "pool_mib"),
}
_UNIT = {
    "hidden_bytes": 8.0,
    "logit_bytes": 8.0,
    "reserve": 0.2,
    "pool_mib": 4000.0,
    "group_mib": 4.0,
    "context_mib": 4000.0,
}
"""How far a constant goes before it weighs as much as an error of `_PRIOR`."""
_PRIOR = 0.01
_ROBUST = {"megatron-core": 0.002}
"""Errors beyond which weigh less: Megatron's own figures are exact, the others rounded."""
_ROBUST_ELSE = 0.04
_ROOM = 0.96
"""Of a GPU's memory, that a job which ran took at most."""


def fitted(rows: list[Occupied], start: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of the file with each engine's constants fitted to its own measurements."""
    constants = copy.deepcopy(start)
    for engine, keys in FITTED.items():
        own = [row for row in rows if row.job is not None and row.group != "oom" and row.job.engine == engine]
        if own:
            _fit(own, constants, engine, keys)
    return constants


def _fit(rows: list[Occupied], constants: dict[str, Any], engine: str, keys: tuple[str, ...]) -> None:
    first = np.array([float(constants["engines"][engine][key]) for key in keys])
    units = np.array([_UNIT[key] for key in keys])

    def away(row: Occupied, built: MemoryConstants) -> float:
        if row.measured:
            return float(np.log(row.predicted(built) / row.measured))
        # That it ran tells an upper bound.
        return max(0.0, float(np.log(row.stage(built).device / (_ROOM * row.capacity))))

    def residuals(values: np.ndarray) -> np.ndarray:
        constants["engines"][engine].update(zip(keys, map(float, values), strict=True))
        built = build(constants)
        return np.concatenate([[away(row, built) for row in rows], _PRIOR * (values - first) / units])

    found = least_squares(
        residuals,
        np.maximum(first, 1e-3 * units),
        loss="cauchy",
        f_scale=_ROBUST.get(engine, _ROBUST_ELSE),
        bounds=(0, np.inf),
        x_scale=units,
        diff_step=1e-4,
    )
    values = [float(f"{value:.3g}") for value in found.x]
    constants["engines"][engine].update(zip(keys, values, strict=True))
