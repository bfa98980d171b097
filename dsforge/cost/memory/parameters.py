"""Parameters that one rank holds of a stage, the experts' apart: they are shared out otherwise."""

from __future__ import annotations

from typing import NamedTuple

from dsforge.cost.job import Job, Work


class Held(NamedTuple):
    """Parameters of one rank: those of experts, and all others."""

    dense: int
    experts: int


def layer(job: Job, *, experts: bool) -> Held:
    """Return parameters of one layer on one rank; its MLP is of experts or, first in some models, plain."""
    work, tp = job.work, job.tp
    norms = 2 * _norm(work)
    attention = _attention(work, tp) + norms
    if not experts or work.experts is None:
        return Held(attention + _mlp(work, work.ffn_hidden, tp), 0)
    mixture = work.experts
    router = mixture.count * work.hidden
    shared = _mlp(work, round(mixture.shared * mixture.width), tp) if mixture.shared else 0
    own = -(-mixture.count // job.ep) * _mlp(work, mixture.width, job.expert_tp or tp)
    return Held(attention + router + shared, own)


def stage(job: Job, layers: int, dense_layers: int, *, first: bool, last: bool) -> Held:
    """Return parameters of a rank of a stage with these layers, `dense_layers` of them without experts."""
    work = job.work
    words = -(-work.vocab // job.tp) * work.hidden
    ends = (words + work.positions * work.hidden if first else 0) + (_norm(work) if last else 0)
    if last and not (work.tied and first):
        ends += words
    mixed = layer(job, experts=True)
    plain = layer(job, experts=False) if dense_layers else mixed
    dense = ends + (layers - dense_layers) * mixed.dense + dense_layers * plain.dense
    experts = (layers - dense_layers) * mixed.experts
    if last and work.mtp:
        # Two norms and a projection of twice the width stand before a layer of each; they read embeddings.
        dense += 0 if first or work.tied else words
        dense += work.mtp * (mixed.dense + 3 * _norm(work) + 2 * work.hidden * -(-work.hidden // job.tp))
        experts += work.mtp * mixed.experts
    return Held(dense, experts)


def _norm(work: Work) -> int:
    return work.hidden * (2 if work.norm_bias else 1)


def _attention(work: Work, tp: int) -> int:
    heads = -(-work.heads // tp)
    latent = work.latent
    if latent is not None:
        each = latent.plain + latent.rotary
        if latent.query_rank:
            queries = work.hidden * latent.query_rank + latent.query_rank + latent.query_rank * heads * each
        else:
            queries = work.hidden * heads * each
        keys = work.hidden * (latent.kv_rank + latent.rotary) + latent.kv_rank
        expanded = latent.kv_rank * heads * (latent.plain + latent.value)
        return queries + keys + expanded + heads * latent.value * work.hidden
    own = heads * work.head_dim
    qkv = own + 2 * -(-work.kv_heads // tp) * work.head_dim
    return work.hidden * (qkv + own) + (qkv + work.hidden if work.bias else 0)


def _mlp(work: Work, width: int, tp: int) -> int:
    share, inputs = -(-width // tp), 2 if work.gated else 1
    biases = inputs * share + work.hidden if work.bias else 0
    return (inputs + 1) * work.hidden * share + biases
