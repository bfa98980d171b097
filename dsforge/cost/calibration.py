"""The fitted constants of the cost model, from `catalog/data/calibration.yaml`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from dsforge.catalog.yaml_tables import table


@dataclass(frozen=True, slots=True)
class Generation:
    """Of a GPU generation: shares of the matrix rate that training reaches.

    `fp8`, `fp4`: of twice and four times it. `early_instructions`: of that rate, what a kernel reaches that
    was written for the generation before. `fuses_experts`: it has kernels that do. `exponential_share`: of
    the time of attention that its exponentials decide, with heads of 128. `expert_layer_seconds`: of host
    work for a layer of experts, at least.
    """

    matmul: float
    fp8: float
    fp4: float
    early_instructions: float
    fuses_experts: bool
    exponential_share: float
    expert_layer_seconds: float


@dataclass(frozen=True, slots=True)
class Engine:
    """Of a training engine: memory traffic of its unfused parts, and what it hides behind compute.

    `unfused`: traffic of norms, activations and residuals over that of fused kernels. `layer_seconds`: of
    host work that a layer of a micro-batch waits for, for each TP rank that must meet the others.
    `fused_experts`: grouped products with what lies between them, where the GPU `fuses_experts`.
    `plain_dispatch`: a token leaves its node once for each of its experts, not once for each node.
    `tp_hidden` (with sequence parallelism), `dp_hidden`, `shard_hidden`: shares of communication time, or of
    compute that it may hide behind. `flash`: which FlashAttention it has; the first two know no instructions
    after Ampere's. `low_gathers`: weights and activations are gathered in the products' precision.
    `one_port`: gathers use one network port of a node at a time. `split_between_stages`: a TP rank sends
    its share of what goes between stages. `fuses_sums`: products add to the sums of gradients themselves.
    `deals_by_time`: stages get layers so that all take as long, head and all. `stops_early`: recomputation
    of a layer leaves out its last product, which no gradient needs (torch's checkpoint without reentry).
    `measured`: some of its runs are published.
    """

    unfused: float
    layer_seconds: float
    fused_experts: bool
    plain_dispatch: bool
    tp_hidden: float
    dp_hidden: float
    shard_hidden: float
    flash: int
    fp32_gradients: bool
    low_gathers: bool
    shards: bool
    split_between_stages: bool
    stops_early: bool
    fuses_sums: bool
    deals_by_time: bool
    measured: bool
    one_port: bool


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the published runs of an engine go, and of those that differ from it in little.

    `seq_len`: tokens of their longest samples. `cp`: their highest degree. `offload`: the optimizer of some
    ran on the host.
    """

    seq_len: int
    cp: int
    offload: bool


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
    """Mean relative error over sources that a fit had not seen, by kind of run."""
    like: dict[str, str]
    """The engine that an engine differs from in little."""
    reaches: dict[str, Reach]
    """Of the engines that are like no other."""

    def basis(self, engine: str) -> str:
        """Return the engine whose published runs are in the constants of one: itself, where it has some."""
        return engine if self.engines[engine].measured else self.basis(self.like[engine])

    def kin(self, engine: str) -> str:
        """Return the engine like no other from which one differs in little."""
        return self.kin(self.like[engine]) if engine in self.like else engine


def build(rows: dict[str, Any]) -> Calibration:
    """Return a calibration from the rows of its file."""
    return Calibration(
        {name: Generation(**row) for name, row in rows["generations"].items()},
        {name: _engine(rows["engines"], name) for name in rows["engines"]},
        dict(rows["fabrics"]),
        dict(rows["common"]),
        dict(rows["trainers"]),
        dict(rows["errors"]),
        {name: row["like"] for name, row in rows["engines"].items() if "like" in row},
        {name: Reach(**row) for name, row in rows["reaches"].items()},
    )


def _engine(rows: dict[str, Any], name: str) -> Engine:
    """Return an engine: what its row says, else what the engine says that it is `like`."""
    row = rows[name]
    own = {key: value for key, value in row.items() if key != "like"}
    return replace(_engine(rows, row["like"]), **own) if "like" in row else Engine(**own)


@cache
def calibration() -> Calibration:
    """Return the constants that come with this version."""
    return build(table("calibration"))
