"""Seconds of one optimizer step, part by part."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dsforge.cost.calibration import Calibration, calibration
from dsforge.cost.job import Job
from dsforge.cost.kernels import Kernels
from dsforge.cost.network import Network

_RECOMPUTED = {"none": 0.0, "full": 1.0, "alternate": 0.5}
_HOST_SECONDS_PER_PARAMETER = 2e-9
_INTERLEAVED_SENDS = 0.3


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """A step's time. `compute`: forward and backward of the layers; `head`: of the output and the loss.

    The others are what compute does not hide: activations of TP, CP and EP, the pipeline's sends and its
    bubble, gradients or sharded weights.
    """

    compute: float
    recompute: float
    head: float
    tensor_parallel: float
    context_parallel: float
    expert_parallel: float
    pipeline_sends: float
    bubble: float
    data_parallel: float
    optimizer: float

    @property
    def total(self) -> float:
        """All of it."""
        return float(sum(getattr(self, field.name) for field in fields(self)))


def step_seconds(job: Job, constants: Calibration | None = None) -> StepSeconds:
    """Return how long a step takes: the slowest stage sets the pace, 1F1B fills and drains over the rest."""
    constants = constants or calibration()
    engine, common = constants.engines[job.engine], constants.common
    kernels, network = Kernels(job, constants), Network(job, constants)
    layer = kernels.layer()
    experts = job.work.experts is not None
    fixed = constants.generations[job.machine.generation].expert_layer_seconds if experts else 0.0
    tensor = network.tensor_parallel() * (1 - engine.tp_hidden)
    ring, dispatch = network.context_parallel(layer.core), network.expert_parallel()
    forward = layer.forward + tensor + ring + dispatch
    again = _recomputed(job, forward, layer.core, common)
    steps = job.accumulation_steps
    layers = job.work.layers / job.pp * steps
    head = kernels.head() * steps
    sends = 0.0
    if job.pp > 1:
        each = network.between_stages(split=engine.split_between_stages)
        sends = each * (1 if job.vp == 1 else job.vp * _INTERLEAVED_SENDS) * steps
    busy = layers * (layer.forward + layer.backward + fixed + 2 * (tensor + ring + dispatch) + again) + sends
    bubble = (job.pp - 1) / job.vp * busy / steps
    parameters = _parameters_a_rank(job)
    data = _data_parallel(job, busy + head + bubble, parameters, constants, network)
    if job.offload:
        data += common["offload"] * parameters / job.gpus * _HOST_SECONDS_PER_PARAMETER
    scale = engine.overhead
    return StepSeconds(
        compute=scale * layers * (layer.forward + layer.backward + fixed),
        recompute=scale * layers * again,
        head=scale * head,
        tensor_parallel=scale * layers * 2 * tensor,
        context_parallel=scale * layers * 2 * ring,
        expert_parallel=scale * layers * 2 * dispatch,
        pipeline_sends=scale * sends,
        bubble=scale * bubble,
        data_parallel=scale * data,
        optimizer=scale * _optimizer(job, parameters),
    )


def _recomputed(job: Job, forward: float, core: float, common: dict[str, float]) -> float:
    if job.recompute == "selective":
        return core
    if job.recompute == "operators":
        return common["operators_recomputed"] * forward
    return _RECOMPUTED[job.recompute] * forward


def _parameters_a_rank(job: Job) -> float:
    """Return the parameters of one rank if there were one stage; experts are whole on their rank."""
    work, matrices = job.work, 3 if job.work.gated else 2
    attention = work.layers * work.hidden * (2 * work.attention_width + 2 * work.kv_width)
    dense = attention + work.vocab * work.hidden
    if work.experts is None:
        return (dense + work.layers * matrices * work.hidden * work.ffn_hidden) / job.tp
    experts = work.layers * matrices * work.hidden * work.experts.width * work.experts.count / job.ep
    return dense / job.tp + experts


def _data_parallel(
    job: Job, compute: float, parameters: float, constants: Calibration, network: Network
) -> float:
    engine, common = constants.engines[job.engine], constants.common
    own = parameters / job.pp
    if engine.shards or job.zero >= 3:
        if job.dp == 1:
            return 0.0
        low = 1.0 if job.precision in ("fp8", "fp4") and not engine.shards else 2.0
        wanted = network.shards(own, low, engine.network_share)
        return max(0.0, wanted - engine.shard_hidden * compute) + common["exposed"] * wanted
    wanted = network.gradients(own, fp32=engine.fp32_gradients)
    if engine.dp_hidden == 0:
        return wanted
    # Gradients are reduced while the last micro-batch goes backward.
    hidden = engine.dp_hidden * compute / job.accumulation_steps
    return max(0.0, wanted - hidden) + common["exposed"] * wanted


def _optimizer(job: Job, parameters: float) -> float:
    """Adam reads and writes 28 bytes a parameter: fp32 weights and two moments, a gradient, half weights."""
    owners = job.dp if job.zero >= 1 else 1
    return 0.0 if job.offload else 28 * parameters / job.pp / owners / job.machine.memory_bytes_per_second
