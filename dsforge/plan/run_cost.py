"""What a run costs: hours, money, energy, and its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from dsforge.catalog.tables import find_hardware
from dsforge.cost.memory.constants import keeper_of
from dsforge.cost.states import ADAM, bytes_per_parameter
from dsforge.plan.job import engine_of_plan
from dsforge.plan.types import Plan

_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Prices:
    """What the recipe's cluster says: money a GPU-hour, power beyond the boards, GB/s of checkpoints."""

    per_gpu_hour: float | None = None
    power_overhead: float = 1.2
    storage_gb_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunCost:
    """All steps of a run, without restarts, evaluation and checkpoints.

    `energy_kwh`: boards at their full power, times `power_overhead` for hosts, network and cooling; None
    where the catalogue has no power. `checkpoint_bytes`: weights and optimizer states of a whole model.
    """

    days: float
    gpu_hours: float
    money: float | None
    energy_kwh: float | None
    board_watts: float | None
    power_overhead: float
    checkpoint_bytes: int
    checkpoint_seconds: float | None


def checkpoint_bytes(plan: Plan) -> int:
    """Return the bytes of weights and optimizer states, which a checkpoint keeps."""
    precision = plan.train.precision if plan.train.precision in ADAM else "bf16"
    each = bytes_per_parameter(keeper_of(engine_of_plan(plan)), precision, plan.layout.zero)
    # Megatron's optimizer holds fp32 gradients in fp16, too, which no checkpoint keeps.
    optimizer = min(each.optimizer, ADAM[precision].optimizer)
    return plan.parameters.total * (each.parameters + optimizer)


def run_cost(plan: Plan, step_seconds: float, prices: Prices) -> RunCost:
    """Return what a plan's steps cost at these prices."""
    seconds = step_seconds * plan.train.steps
    hours = seconds * plan.layout.world_size / 3600
    watts = find_hardware(plan.gpu).watts
    size = checkpoint_bytes(plan)
    storage = prices.storage_gb_per_s
    return RunCost(
        days=seconds / _DAY_SECONDS,
        gpu_hours=hours,
        money=hours * prices.per_gpu_hour if prices.per_gpu_hour is not None else None,
        energy_kwh=hours * watts / 1000 * prices.power_overhead if watts else None,
        board_watts=watts,
        power_overhead=prices.power_overhead,
        checkpoint_bytes=size,
        checkpoint_seconds=size / (storage * 1e9) if storage else None,
    )
