"""How long a planned step takes by the calibrated cost model, and what follows for the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dsforge.catalog.tables import find_hardware
from dsforge.cost.calibration import calibration
from dsforge.cost.groups import GroupShare, communication
from dsforge.cost.job import Job
from dsforge.cost.operations import hardware_operations, model_operations
from dsforge.cost.step import NVME_BYTES_PER_SECOND, StepSeconds, step_seconds
from dsforge.plan.job import job_of
from dsforge.plan.measurements import Factor
from dsforge.plan.run_cost import Prices, RunCost, run_cost
from dsforge.plan.types import Plan

CONVENTION = "6 N + 12 l w s operations a token; causal: 6 l w s; hardware: with recomputed ones"

_TORCH_FLASH = 2
"""The FlashAttention that PyTorch brings along, which has no instructions after Ampere's."""


@dataclass(frozen=True, slots=True)
class Rates:
    """TFLOP/s a GPU and its share of the data sheet's peak at the precision, None where there is no peak.

    `model` counts what the model asks for (its share: MFU), `hardware` recomputed operations, too (HFU).
    """

    model: float
    hardware: float
    mfu: float | None
    hfu: float | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A step's parts in seconds and what follows for the run.

    `full` counts attention whole, `causal` its lower half; see `CONVENTION` and cost/operations.py. `error`:
    the mean relative error of the cost model on runs that its fit had not seen, by kind. `engine`: whose
    measurements its constants are from. `measured`: the GPU's rates are, else they are told from its peaks.
    `beyond`: what none of those published runs has, so that `error` is not known to hold.
    `disk_bytes_per_second`: what a GPU's share of the disks is taken to read and write, where it does.
    `calibrated`: by what layouts measured here the parts are scaled, `error` then theirs, if several.
    """

    step: StepSeconds
    tokens_per_second_per_gpu: float
    full: Rates
    causal: Rates
    convention: str
    bubble_share: float
    communication: tuple[GroupShare, ...]
    run: RunCost
    engine: str
    measured: bool
    error: float
    beyond: tuple[str, ...]
    disk_bytes_per_second: float | None
    calibrated: Factor | None = None

    def to_json_value(self) -> dict[str, Any]:
        """Return the JSON-ready mapping, the step's total beside its parts."""
        made = asdict(self)
        made["step"]["total"] = self.step.total
        return made


def estimate(
    plan: Plan, prices: Prices | None = None, shape: str | None = None, factor: Factor | None = None
) -> Estimate | str:
    """Return the estimate of a plan, or in words why there is none. `shape`: a rented machine."""
    job = job_of(plan, shape)
    if isinstance(job, str):
        return job
    step = scaled(step_seconds(job), factor)
    tokens = plan.batch.global_size * plan.batch.seq_len
    per_gpu = tokens / step.total / plan.layout.world_size
    active = plan.parameters.active or plan.parameters.total
    asked, computed = model_operations(job, active), hardware_operations(job, active)
    peak = find_hardware(plan.gpu).peak_tflops.get(plan.train.precision)
    return Estimate(
        step=step,
        tokens_per_second_per_gpu=per_gpu,
        full=_rates(per_gpu, asked.full, computed.full, peak),
        causal=_rates(per_gpu, asked.causal, computed.causal, peak),
        convention=CONVENTION,
        bubble_share=step.bubble / step.total,
        communication=communication(job, step),
        run=run_cost(plan, step.total, prices or Prices()),
        engine=calibration().basis(job.engine),
        measured=job.machine.measured,
        error=factor.error if factor is not None and factor.error is not None else _error(job),
        beyond=tuple(_beyond(job, own_attention=plan.external is None)),
        disk_bytes_per_second=NVME_BYTES_PER_SECOND
        if job.optimizer_on_disk or job.parameters_on_disk
        else None,
        calibrated=factor,
    )


def scaled(step: StepSeconds, factor: Factor | None) -> StepSeconds:
    """Return a step's parts, each times what a calibration says of the whole."""
    by = 1.0 if factor is None else factor.time
    return StepSeconds(**{name: by * seconds for name, seconds in asdict(step).items()})


def _rates(tokens_per_second: float, asked: float, computed: float, peak: float | None) -> Rates:
    model, hardware = tokens_per_second * asked / 1e12, tokens_per_second * computed / 1e12
    return Rates(model, hardware, model / peak if peak else None, hardware / peak if peak else None)


def _error(job: Job) -> float:
    """Return the error of the kind of runs that a job belongs to; of a GPU without measured rates, theirs."""
    errors = calibration().errors
    kind = "dense 16-bit" if job.precision in ("bf16", "fp16") else "dense fp8"
    if job.machine.generation.startswith("blackwell"):
        kind = "Blackwell dense"
    if job.work.experts is not None:
        kind = "MoE"
    return errors[kind] if job.machine.measured else max(errors[kind], errors["unmeasured"])


def _beyond(job: Job, *, own_attention: bool) -> Iterator[str]:
    """Yield what no published run of the engine has; `own_attention`: PyTorch's, theirs may not be."""
    known = calibration()
    reach = known.reaches[known.kin(job.engine)]
    if job.cp > reach.cp:
        yield f"CP {job.cp}"
    if job.work.seq_len > reach.seq_len:
        yield f"{job.work.seq_len:,} tokens a sample"
    if job.optimizer_on_disk or job.parameters_on_disk:
        yield "offload to a disk"
    elif job.offload_parameters or (job.offload and not reach.offload):
        yield "offload of parameters" if job.offload_parameters else "offload"
    late = known.generations[job.machine.generation].early_instructions < 1
    if late and own_attention and known.engines[job.engine].flash > _TORCH_FLASH:
        yield "PyTorch's own attention"
