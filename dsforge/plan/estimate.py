"""How long a planned step takes, by the calibrated cost model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dsforge.catalog.tables import find_hardware
from dsforge.cost.calibration import calibration
from dsforge.cost.job import Job, Work
from dsforge.cost.machine import machine_of
from dsforge.cost.step import StepSeconds, step_seconds
from dsforge.layout.flops import flops_per_token
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


def job_of(plan: Plan) -> Job | str:
    """Return a plan as the cost model's job, or in words why it has none."""
    machine = machine_of(plan.gpu, plan.layout.gpus_per_node)
    trainer = plan.external.flavour if plan.external else plan.trainer
    engine = calibration().trainers.get(trainer)
    active, total = plan.parameters.active, plan.parameters.total
    reasons = (
        (plan.accelerator == "cpu", "CPU runs prove logic, not speed"),
        (machine is None, f"nobody has published what training reaches on {plan.gpu}"),
        (engine is None, f"no measured runs are like those of trainer {trainer}"),
        (plan.train.precision == "fp32", "the cost model knows 16-bit training"),
        (active is not None and active < total, "a plan does not place experts yet"),
        (plan.layout.schedule == "interleaved", "a plan does not say how many virtual stages there are"),
    )
    why = next((words for holds, words in reasons if holds), None)
    if why is not None:
        return why
    assert machine is not None, "told above"
    assert engine is not None, "told above"
    model, layout = plan.model, plan.layout
    return Job(
        work=Work(
            layers=model.layers,
            hidden=model.hidden,
            heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            ffn_hidden=model.ffn_hidden,
            vocab=model.padded_vocab,
            seq_len=plan.batch.seq_len,
            gated=model.activation in ("swiglu", "geglu"),
        ),
        machine=machine,
        engine=engine,
        gpus=layout.world_size,
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        micro=plan.batch.micro,
        global_batch=plan.batch.global_size,
        precision=plan.train.precision,
        zero=layout.zero,
        recompute=plan.train.recompute,
    )
