"""Bytes that a layer keeps of each token for its backward pass.

Source: Korthikanti et al. 2022 (arXiv:2205.05198), section 4: a plain layer keeps s b h (34 + 5 a s / h)
bytes; TP divides 24 of the 34 and the scores, sequence parallelism the other 10. The terms are taken apart
here, for gated MLPs, grouped queries, experts, and attention that never holds its scores.
"""

from __future__ import annotations

from typing import NamedTuple

from dsforge.cost.job import Job
from dsforge.cost.memory.constants import EngineMemory

_HALF = 2
_MASK = 1
_SCORES = 2
_DROPPED_SCORES = 5
"""Of an unfused softmax: its result, and with dropout the mask and what passes it."""
_LOGSUM = 4
"""FlashAttention keeps one fp32 number a head and token (Dao et al. 2022, algorithm 1)."""


class LayerBytes(NamedTuple):
    """Bytes of one token in one layer on one rank.

    `whole`: all that the backward needs. `kept`: what stays under the job's recomputation. `input`: of the
    layer alone.
    """

    whole: float
    kept: float
    input: float


def layer_bytes(job: Job, engine: EngineMemory, *, experts: bool) -> LayerBytes:
    """Return what one token costs in one layer, with its MLP plain or of experts."""
    work, tp = job.work, job.tp
    split = tp if job.sequence_parallel else 1
    hidden = work.hidden / split
    mask = _MASK * hidden if work.dropout else 0.0
    core = _core(job)
    attention = 2 * _HALF * hidden + mask + _projections(job, engine) + core
    if experts and work.experts is not None:
        mlp = 2 * _HALF * hidden + _experts(job)
        inside = _experts(job)
    else:
        inside = _mlp(job, work.ffn_hidden / tp)
        mlp = 2 * _HALF * hidden + mask + inside
    whole = attention + mlp + engine.hidden_bytes * hidden
    inputs = _HALF * work.hidden / (tp if job.sequence_parallel or engine.splits_inputs else 1)
    kept = {
        "none": whole,
        "selective": whole - core,
        "operators": (whole + inputs) / 2,
        "alternate": (whole + inputs) / 2,
        "mlp": whole - inside,
        "full": inputs / job.recompute_every,
    }[job.recompute]
    return LayerBytes(whole, kept, inputs)


def _core(job: Job) -> float:
    """Return what the attention core keeps besides its inputs and output."""
    work = job.work
    heads = work.heads / job.tp
    if job.flash_attention:
        return _LOGSUM * heads
    return (_DROPPED_SCORES if work.dropout else _SCORES) * heads * work.seq_len / job.cp


def _projections(job: Job, engine: EngineMemory) -> float:
    """Return queries, keys, values and the output of the core."""
    work, tp = job.work, job.tp
    latent = work.latent
    if latent is not None:
        heads = work.heads / tp
        each = 2 * (latent.nope_dim + latent.rope_dim) + 2 * latent.value_dim
        compressed = 2 * (latent.q_rank + latent.kv_rank) + latent.rope_dim
        return _HALF * (heads * each + compressed)
    own, keys = work.attention_width / tp, max(work.head_dim, work.kv_width / tp)
    again = own + keys if engine.keeps_qkv else 0.0
    return _HALF * (2 * own + 2 * keys + again)


def _mlp(job: Job, width: float) -> float:
    """Return what enters the activation and what leaves it; what enters the MLP is counted with its norm."""
    return _HALF * width * (3 if job.work.gated else 2)


def _experts(job: Job) -> float:
    """Return each token's copies for its experts, before and after, and what is inside them."""
    work, mixture = job.work, job.work.experts
    assert mixture is not None, "asked of layers of experts"
    etp = job.expert_tp or job.tp
    # Every rank routes its own part of the sequence; TP within experts gathers that part again.
    copies = mixture.chosen * etp / job.tp
    moved = 2 * _HALF * work.hidden * copies
    inside = _mlp(job, mixture.width / etp) * copies
    shared = _mlp(job, mixture.shared * mixture.width / job.tp)
    return moved + inside + shared
