"""How long a planned step takes, by the calibrated cost model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dsforge.catalog.tables import find_hardware
from dsforge.cost.calibration import calibration
from dsforge.cost.step import StepSeconds, step_seconds
from dsforge.layout.flops import flops_per_token
from dsforge.plan.job import job_of
from dsforge.plan.types import Plan

_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A step's parts in seconds and what follows for the run.

    `model_tflops_per_gpu` and `mfu` count 6 N + 12 l w s a token, no recomputation (layout/flops.py).
    `error`: the mean relative error of the cost model on published runs of the kind. `engine`: whose
    measurements its constants are from.
    """

    step: StepSeconds
    tokens_per_second_per_gpu: float
    model_tflops_per_gpu: float
    mfu: float | None
    days: float
    gpu_hours: float
    engine: str
    error: float

    def to_json_value(self) -> dict[str, Any]:
        """Return the JSON-ready mapping, the step's total beside its parts."""
        made = asdict(self)
        made["step"]["total"] = self.step.total
        return made


def estimate(plan: Plan) -> Estimate | str:
    """Return the estimate of a plan, or in words why there is none."""
    job = job_of(plan)
    if isinstance(job, str):
        return job
    step = step_seconds(job)
    tokens = plan.batch.global_size * plan.batch.seq_len
    per_gpu = tokens / step.total / plan.layout.world_size
    model = plan.model
    active = plan.parameters.active or plan.parameters.total
    operations = flops_per_token(active, model.layers, model.heads * model.head_dim, plan.batch.seq_len)
    attained = per_gpu * operations / 1e12
    peak = find_hardware(plan.gpu).peak_tflops.get(plan.train.precision)
    seconds = step.total * plan.train.steps
    return Estimate(
        step=step,
        tokens_per_second_per_gpu=per_gpu,
        model_tflops_per_gpu=attained,
        mfu=attained / peak if peak else None,
        days=seconds / _DAY_SECONDS,
        gpu_hours=seconds * plan.layout.world_size / 3600,
        engine=job.engine,
        error=calibration().errors["dense"],
    )
