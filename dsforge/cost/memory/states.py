"""Bytes of weights, gradients, their sums and the optimizer on one rank, as each engine keeps them."""

from __future__ import annotations

from typing import NamedTuple

from dsforge.cost.job import Job
from dsforge.cost.memory.constants import EngineMemory
from dsforge.cost.memory.parameters import Held
from dsforge.cost.states import ADAM, bytes_per_parameter, cuts_parameters
from dsforge.layout.optimizers import ADAM_MOMENTS

_LEAN_OPTIMIZER = 6
"""Moments in 16 bits, and of the master copy the 16 bits that the weight lacks (Transformer Engine,
FusedAdam's `store_param_remainders`)."""


class States(NamedTuple):
    """Bytes of one rank by kind; what went to the host instead: `offloaded`, and its share of the weights."""

    weights: float
    gradients: float
    sums: float
    optimizer: float
    offloaded: float
    offloaded_weights: float


def states(job: Job, engine: EngineMemory, held: Held) -> States:
    """Return what a rank keeps for its parameters from step to step."""
    dense_ranks = job.dp * job.cp
    expert_ranks = max(1, dense_ranks * job.tp // (job.ep * (job.expert_tp or job.tp)))
    dense, experts = held
    whole = dense + experts
    sharded = dense / dense_ranks + experts / expert_ranks
    zero = job.zero
    precision = job.precision if job.precision in ADAM else "bf16"
    each = bytes_per_parameter(engine.states, precision, zero)
    weights, gradients = float(each.parameters), float(each.gradients)
    on_host = engine.states == "deepspeed" and job.offload and zero >= 3
    sums = 0.0 if on_host else float(each.sums)
    optimizer = float(each.optimizer - 4 * (ADAM_MOMENTS - job.moments))
    if job.lean_optimizer:
        gradients, optimizer = 2.0, float(_LEAN_OPTIMIZER)
    if job.fp8_weights:
        weights -= 1.0
    update = optimizer * (sharded if zero >= 1 else whole)
    offloaded = 0.0
    if job.offload:
        # The host updates: the gradients go there as they come, or into the sums until the update.
        offloaded, update = update + 4 * sharded, 0.0
        gradients = gradients if zero < 2 and not sums else 0.0
    kept_weights = weights * (sharded if cuts_parameters(engine.states, zero) else whole)
    offloaded_weights = 0.0
    if job.offload_parameters:
        offloaded_weights, kept_weights = kept_weights, 0.0
    shared = sharded if zero >= 2 else whole
    # Under ZeRO-1 whole sums are reduced into a buffer of the shard before they go to the host.
    summed = shared + sharded if job.offload and zero == 1 else shared
    return States(kept_weights, gradients * shared, sums * summed, update, offloaded, offloaded_weights)
