"""The fitted constants of the cost model, from `catalog/data/calibration.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from dsforge.catalog.yaml_tables import table


@dataclass(frozen=True, slots=True)
class Generation:
    """Of a GPU generation: shares of the matrix rate that training reaches, and of the fast link's."""

    matmul: float
    fp8: float
    fp4: float
    attention: float
    early_attention: float
    link: float
    expert_layer_seconds: float


@dataclass(frozen=True, slots=True)
class Engine:
    """Of a training engine: memory traffic of its unfused parts, and what it hides behind compute.

    `overhead` multiplies a step; `tp_hidden`, `dp_hidden`, `shard_hidden`: shares of communication time, or
    of compute that it may hide behind. `early_attention`: its FlashAttention is the first one.
    `splits_activations`: sequence parallelism, or its like for what goes between stages, is its normal form.
    """

    elementwise: float
    overhead: float
    tp_hidden: float
    dp_hidden: float
    shard_hidden: float
    early_attention: bool
    fp32_gradients: bool
    shards: bool
    split_between_stages: bool
    sequence_parallel: bool
    network_share: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """All constants by what they belong to; `common` holds those of kernels and collectives."""

    generations: dict[str, Generation]
    engines: dict[str, Engine]
    fabrics: dict[str, float]
    common: dict[str, float]
    trainers: dict[str, str]
    """Whose engine a trainer of ours is most like."""
    errors: dict[str, float]
    """Mean relative error over sources that a fit had not seen."""


def build(rows: dict[str, Any]) -> Calibration:
    """Return a calibration from the rows of its file."""
    return Calibration(
        {name: Generation(**row) for name, row in rows["generations"].items()},
        {name: Engine(**row) for name, row in rows["engines"].items()},
        dict(rows["fabrics"]),
        dict(rows["common"]),
        dict(rows["trainers"]),
        dict(rows["errors"]),
    )


@cache
def calibration() -> Calibration:
    """Return the constants that come with this version."""
    return build(table("calibration"))
