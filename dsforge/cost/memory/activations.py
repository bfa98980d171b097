"""Bytes that a layer keeps of each token for its backward pass.

Source: Korthikanti et al. 2022 (arXiv:2205.05198), section 4: a plain layer keeps s b h (34 + 5 a s / h)
bytes; TP divides 24 of the 34 and the scores, sequence parallelism the other 10. The terms are taken apart
here, for gated MLPs, grouped queries, experts, and attention that never holds its scores.
"""

from __future__ import annotations

from typing import NamedTuple

from dsforge.cost.job import Job, Latent, Work
from dsforge.cost.memory.constants import EngineMemory

_HALF = 2
_MASK = 1
_SCORES = 2
_DROPPED_SCORES = 5
"""Of an unfused softmax: its result, and with dropout the mask and what passes it."""
_LOGSUM = 4
"""FlashAttention keeps one fp32 number a head and token (Dao et al. 2022, algorithm 1)."""
_COPIES = 4
"""Of a token for an expert: as it is sent, as it enters the expert, as it leaves and as it is back."""


class LayerBytes(NamedTuple):
    """Bytes of one token in one layer on one rank.

    `whole`: all that the backward needs. `kept`: what stays under the job's recomputation. `gradients`:
    those that a layer's backward holds at once.
    """

    whole: float
    kept: float
    gradients: float


def layer_bytes(job: Job, engine: EngineMemory, *, experts: bool) -> LayerBytes:
    """Return what one token costs in one layer, with its MLP plain or of experts."""
    work, tp = job.work, job.tp
    experts = experts and work.experts is not None
    hidden = work.hidden / (tp if job.sequence_parallel else 1)
    parts = {
        "layernorm": 2 * _HALF * hidden,
        "core_attn": _core(job),
        "mla_up_proj": 0.0 if work.latent is None else _expanded(work, work.latent) / tp,
        "mlp": 0.0 if experts else _mlp(job, work.ffn_hidden / tp),
        "moe_act": _routed_width(job) * _HALF if experts else 0.0,
        "moe": _experts(job) if experts else 0.0,
    }
    masks = 2 * _MASK * hidden if work.dropout else 0.0
    # Norms' outputs are what enters the first matrices; with them stand their inputs.
    whole = 2 * parts["layernorm"] + masks + _projections(job) + parts["core_attn"] + parts["mlp"]
    whole += parts["moe"] + (0.0 if job.compiled else engine.hidden_bytes * hidden)
    if engine.keeps_gathered:
        whole += 2 * _HALF * (work.hidden - hidden)
    inputs = _HALF * work.hidden / (tp if job.sequence_parallel or engine.splits_inputs else 1)
    kept = {
        "none": whole,
        "selective": whole - sum(parts[name] for name in job.recompute_modules),
        "operators": inputs + _products(job) / 2,
        "alternate": (whole + inputs) / 2,
        "full": inputs / job.recompute_every,
    }[job.recompute]
    gradients = _HALF * (2 * work.hidden + work.ffn_hidden / tp)
    return LayerBytes(whole, kept, gradients)


def _core(job: Job) -> float:
    """Return what the attention core keeps besides its inputs and output."""
    work = job.work
    heads = work.heads / job.tp
    if job.flash_attention:
        # A ring keeps the keys and values it sends on.
        copies = 0 if job.cp == 1 else job.cp if job.gathers_context else 1
        return _LOGSUM * heads + copies * 2 * _HALF * work.kv_width / job.tp
    return (_DROPPED_SCORES if work.dropout else _SCORES) * heads * work.seq_len / job.cp


def _projections(job: Job) -> float:
    """Return queries, keys, values and the output of the core."""
    work, tp = job.work, job.tp
    latent = work.latent
    if latent is not None:
        compressed = 2 * (latent.query_rank + latent.kv_rank) + latent.rotary
        return _HALF * (work.heads / tp * latent.value + compressed) + _expanded(work, latent) / tp
    own, keys = work.attention_width / tp, max(work.head_dim, work.kv_width / tp)
    return _HALF * (2 * own + 2 * keys)


def _expanded(work: Work, latent: Latent) -> float:
    """Return queries, keys and values of all heads."""
    return _HALF * work.heads * (2 * (latent.plain + latent.rotary) + latent.value)


def _products(job: Job) -> float:
    """Return what the matrix products and the attention core give; the core's counts twice."""
    work = job.work
    width = 3 * work.attention_width + 2 * work.kv_width + (2 if work.gated else 1) * work.ffn_hidden
    return _HALF * (width + work.hidden + work.hidden * job.tp) / job.tp


def _mlp(job: Job, width: float) -> float:
    """Return what enters the activation and what leaves it; what enters the MLP is counted with its norm."""
    return _HALF * width * (3 if job.work.gated else 2)


def _copies(job: Job) -> float:
    """Return how often a rank holds one token's row for its experts.

    Under sequence parallelism every rank routes its own part; TP within experts gathers that part again.
    """
    assert job.work.experts is not None, "asked of layers of experts"
    own = (job.expert_tp or job.tp) / job.tp if job.sequence_parallel else 1.0
    return job.work.experts.chosen * own


def _routed_width(job: Job) -> float:
    """Return the width that a rank holds of the experts of one token, all together."""
    assert job.work.experts is not None, "asked of layers of experts"
    return _copies(job) * job.work.experts.width / (job.expert_tp or job.tp)


def _experts(job: Job) -> float:
    """Return each token's copies for its experts, before and after, and what is inside them."""
    work, mixture = job.work, job.work.experts
    assert mixture is not None, "asked of layers of experts"
    moved = _COPIES * _HALF * work.hidden * _copies(job)
    shared = _mlp(job, mixture.shared * mixture.width / job.tp)
    return moved + _mlp(job, _routed_width(job)) + shared
