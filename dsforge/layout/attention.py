"""Parameters of the attention of one layer, whole or on one tensor-parallel rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsforge.catalog.families import LatentAttention

if TYPE_CHECKING:
    from dsforge.layout.shape import Shape


def attention_parameters(shape: Shape, tp: int = 1) -> int:
    """Return parameters that one of `tp` ranks holds.

    Heads are dealt out: queries, keys and values by columns, the output by rows (Shoeybi et al. 2019,
    section 3). Fewer key-value heads than ranks are repeated. The bias of the output is added after the
    reduction and stands on every rank, as do the norms of queries and keys.
    """
    heads = -(-shape.heads // tp)
    if shape.latent is not None:
        return _latent(shape.hidden, heads, shape.latent)
    kv_heads = -(-shape.kv_heads // tp)
    traits, width = shape.traits, heads * shape.head_dim
    qkv_width = width + 2 * kv_heads * shape.head_dim
    weights = shape.hidden * qkv_width + width * shape.hidden
    biases = qkv_width * traits.qkv_bias + shape.hidden * traits.output_bias
    return weights + biases + 2 * shape.head_dim * traits.qk_norm + heads * traits.sinks


def _latent(hidden: int, heads: int, latent: LatentAttention) -> int:
    """Return parameters of latent attention (DeepSeek-AI 2024, V2, section 2.1 and appendix C).

    The compressions and their norms serve all heads and stand on every rank, as in Megatron's layers
    on Transformer Engine (`parallel_mode="duplicated"`); what expands them to heads is split.
    """
    query_width = heads * (latent.nope_dim + latent.rope_dim)
    if latent.q_rank is None:
        queries = hidden * query_width
    else:
        queries = hidden * latent.q_rank + latent.q_rank + latent.q_rank * query_width
    compressed = hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
    expanded = latent.kv_rank * heads * (latent.nope_dim + latent.value_dim)
    return queries + compressed + expanded + heads * latent.value_dim * hidden
