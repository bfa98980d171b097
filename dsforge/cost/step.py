"""Seconds of one optimizer step, part by part."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dsforge.cost.calibration import Calibration, calibration
from dsforge.cost.job import Job
from dsforge.cost.kernels import Kernels
from dsforge.cost.network import Network

_RECOMPUTED = {"none": 0.0, "full": 1.0, "alternate": 0.5}
_OPERATORS_RECOMPUTED = 0.5
"""Every other matrix product and what lies between; attention is kept."""
_HOST_SECONDS_PER_PARAMETER = 2e-9
_HOST_BYTES_PER_SECOND = 25e9
"""Of PCIe 4.0 with 16 lanes, as copies reach it."""
NVME_BYTES_PER_SECOND = 1.6e9
"""A GPU's share of a node's disks: Rajbhandari et al. 2021 (ZeRO-Infinity, arXiv:2104.07857), figure 2b."""
_INTERLEAVED_SENDS = 0.3


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """A step's time. `compute`: forward and backward of the layers; `head`: of the output and the loss.

    `optimizer`: the update on the GPU and what summing gradients moves; `offload`: the update on the host.
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
    offload: float

    @property
    def total(self) -> float:
        """All of it."""
        return float(sum(getattr(self, field.name) for field in fields(self)))


def step_seconds(job: Job, constants: Calibration | None = None) -> StepSeconds:
    """Return how long a step takes: the slowest stage sets the pace, 1F1B fills and drains over the rest."""
    constants = constants or calibration()
    engine = constants.engines[job.engine]
    kernels, network = Kernels(job, constants), Network(job, constants)
    layer = kernels.layer()
    fixed = engine.layer_seconds * job.tp
    tensor = network.tensor_parallel() * (1 - engine.tp_hidden * job.sequence_parallel)
    ring, dispatch = network.context_parallel(layer.core), network.expert_parallel()
    forward = layer.forward + tensor + ring + dispatch
    core = layer.core + (ring if job.gathers_context else 0.0)
    again = _recomputed(job, forward - (layer.last if engine.stops_early else 0.0), core)
    steps = job.accumulation_steps
    layer_seconds = layer.forward + layer.backward + fixed + 2 * (tensor + ring + dispatch) + again
    if job.work.experts:
        fixed = max(0.0, kernels.host_seconds - layer_seconds)
        layer_seconds += fixed
    layers, head = _slowest_stage(job, layer_seconds, kernels.head(), engine.deals_by_time)
    layers, head = layers * steps, head * steps
    sends = 0.0
    if job.pp > 1:
        each = network.between_stages(split=engine.split_between_stages or job.sequence_parallel)
        sends = each * (1 if job.vp == 1 else job.vp * _INTERLEAVED_SENDS) * steps
    busy = layers * layer_seconds + sends
    bubble = (job.pp - 1) / job.vp * (job.work.layers / job.pp * layer_seconds + sends / steps)
    parameters = _parameters_a_rank(job)
    sums = _sums(job, parameters, fp32=engine.fp32_gradients, fused=engine.fuses_sums)
    data = _data_parallel(job, busy + head + bubble, parameters, constants, network)
    return StepSeconds(
        compute=layers * (layer.forward + layer.backward + fixed),
        recompute=layers * again,
        head=head,
        tensor_parallel=layers * 2 * tensor,
        context_parallel=layers * 2 * ring,
        expert_parallel=layers * 2 * dispatch,
        pipeline_sends=sends,
        bubble=bubble,
        data_parallel=data,
        optimizer=_optimizer(job, parameters) + sums,
        offload=_offload(job, parameters),
    )


def _slowest_stage(job: Job, layer: float, head: float, by_time: bool) -> tuple[float, float]:
    """Return layers and seconds of the head on the stage that sets the pace.

    Where a job does not say how layers are dealt and they do not divide, the last stage has the fewer ones
    and the head: 126 layers on 16 stages are 7, 14 times 8, and 7.
    """
    last, rest = divmod(job.work.layers, job.pp)
    most = last + bool(rest)
    if job.first_layers is not None and job.last_layers is not None and job.pp > 1:
        last = job.last_layers
        between = job.work.layers - job.first_layers - last
        most = max(job.first_layers, -(-between // max(1, job.pp - 2)))
    elif by_time and job.pp > 1:
        # The head's time is taken off the last stage, and dealt to the others.
        last = max(0, round((job.work.layers * layer - (job.pp - 1) * head) / (job.pp * layer)))
        most = -(-(job.work.layers - last) // (job.pp - 1))
    return (most, 0.0) if most * layer > last * layer + head else (last, head)


def _sums(job: Job, parameters: float, *, fp32: bool, fused: bool) -> float:
    """Return what summing gradients over micro-batches moves beyond the products' own half-precision output.

    Fused, it reads the sum, and writes 4 bytes for 2 in fp32; else it reads a gradient, too, and writes the
    sum anew.
    """
    if job.accumulation_steps == 1 and not fp32:
        return 0.0
    wide = fp32 or (job.precision == "bf16" and job.zero < 2 and not fused)
    each = (6 if wide else 2) if fused else (10 if wide else 6)
    moved = each * parameters / job.pp * job.accumulation_steps
    return moved / job.machine.memory_bytes_per_second


def _recomputed(job: Job, forward: float, core: float) -> float:
    if job.recompute == "selective":
        return core
    if job.recompute == "operators":
        return _OPERATORS_RECOMPUTED * (forward - core)
    return _RECOMPUTED[job.recompute] * forward


def _parameters_a_rank(job: Job) -> float:
    """Return the parameters of one rank if there were one stage; experts are whole on their rank."""
    work, matrices = job.work, 3 if job.work.gated else 2
    dense = work.layers * work.attention_parameters + work.vocab * work.hidden
    if work.experts is None:
        return (dense + work.layers * matrices * work.hidden * work.ffn_hidden) / job.tp
    mixture, plain = work.experts, work.experts.dense_layers
    experts = matrices * work.hidden * mixture.width * mixture.count / job.ep / job.experts_split
    dense += plain * matrices * work.hidden * work.ffn_hidden
    return dense / job.tp + (work.layers - plain) * experts


def _data_parallel(
    job: Job, compute: float, parameters: float, constants: Calibration, network: Network
) -> float:
    engine, common = constants.engines[job.engine], constants.common
    own = parameters / job.pp
    # In a pipeline weights stay whole until the step's end: each micro-batch would gather them anew.
    if job.pp == 1 and (job.zero >= 3 or (engine.shards and job.zero == 2)):
        if job.dp == 1:
            return 0.0
        wanted = network.shards(own, network.gathered_bytes, one_port=engine.one_port)
        return max(0.0, wanted - engine.shard_hidden * compute) + common["shard_exposed"] * wanted
    wanted = network.gradients(own, 4.0 if engine.fp32_gradients else 2.0, network.gathered_bytes)
    if engine.dp_hidden == 0:
        return wanted
    # Gradients are reduced while the last micro-batch goes backward.
    hidden = engine.dp_hidden * compute / job.accumulation_steps
    return max(0.0, wanted - hidden) + common["exposed"] * wanted


def _optimizer(job: Job, parameters: float) -> float:
    """Adam reads and writes 28 bytes a parameter: fp32 weights and two moments, a gradient, half weights."""
    owners = job.dp if job.zero >= 1 else 1
    return 0.0 if job.offload else 28 * parameters / job.pp / owners / job.machine.memory_bytes_per_second


def _offload(job: Job, parameters: float) -> float:
    """Return the host's update, what passes between it and the GPU, and what comes from disk and goes back.

    Half gradients go down once a step, and half weights up; offloaded, these go up in every pass over the
    layers, from a disk first, on which they are written once.
    """
    if not job.offload:
        return 0.0
    own, weight = parameters / job.gpus, 4 if job.precision == "fp32" else 2
    passes = (2 + _RECOMPUTED.get(job.recompute, 0.0)) * job.accumulation_steps
    copied = weight * ((passes if job.offload_parameters else 1) + 1)
    moved = 2.0 * 12 if job.optimizer_on_disk else 0.0
    moved += weight * (passes + 1) if job.parameters_on_disk else 0.0
    return own * (
        _HOST_SECONDS_PER_PARAMETER + copied / _HOST_BYTES_PER_SECOND + moved / NVME_BYTES_PER_SECOND
    )
