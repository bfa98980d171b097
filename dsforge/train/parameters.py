"""Every parameter of a model under its global name: the same whatever the layout or the engine.

The fused attention weight `linear_qkv` holds, for each group of key-value heads in turn, the group's
query heads, then its key head, then its value head (megatron-core, `core/transformer/attention.py`,
`SelfAttention.get_query_key_value_tensors`). The fused SwiGLU weight `linear_fc1` holds all gate rows,
then all up rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dsforge.plan.types import Model

Kind = Literal["weight", "output", "one", "zero"]


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A parameter: full shape without padding, how TP cuts it, how it starts.

    `padded_rows` is the first dimension in the engines (the vocabulary's padding), else None. `kind` output
    is a projection into the residual stream, drawn with a smaller deviation.
    """

    name: str
    shape: tuple[int, ...]
    partition_dim: int | None
    partition_stride: int
    kind: Kind
    padded_rows: int | None = None


def _norm(model: Model, name: str) -> Iterator[ParameterSpec]:
    yield ParameterSpec(f"{name}.weight", (model.hidden,), None, 1, "one")
    if model.norm == "layernorm":
        yield ParameterSpec(f"{name}.bias", (model.hidden,), None, 1, "zero")


def _linear(
    model: Model, name: str, rows: int, columns: int, *, dim: int, stride: int = 1
) -> Iterator[ParameterSpec]:
    kind: Kind = "output" if dim == 1 else "weight"
    yield ParameterSpec(f"{name}.weight", (rows, columns), dim, stride, kind)
    if model.linear_bias:
        # A row-parallel bias is added after the reduction, so every shard holds all of it.
        yield ParameterSpec(f"{name}.bias", (rows,), 0 if dim == 0 else None, stride, "zero")


def layer_parameters(model: Model, layer: int) -> Iterator[ParameterSpec]:
    """Yield the parameters of one transformer layer, counted from 0."""
    at = f"layers.{layer}"
    heads = model.heads * model.head_dim
    fused = heads + 2 * model.kv_heads * model.head_dim
    gates = 2 if model.activation == "swiglu" else 1
    yield from _norm(model, f"{at}.input_layernorm")
    yield from _linear(model, f"{at}.self_attention.linear_qkv", fused, model.hidden, dim=0)
    yield from _linear(model, f"{at}.self_attention.linear_proj", model.hidden, heads, dim=1)
    yield from _norm(model, f"{at}.pre_mlp_layernorm")
    rows = gates * model.ffn_hidden
    yield from _linear(model, f"{at}.mlp.linear_fc1", rows, model.hidden, dim=0, stride=gates)
    yield from _linear(model, f"{at}.mlp.linear_fc2", model.hidden, model.ffn_hidden, dim=1)


def model_parameters(model: Model) -> Iterator[ParameterSpec]:
    """Yield every parameter of a model; a tied weight stands once, as `embedding.word.weight`."""
    table = (model.vocab, model.hidden)
    yield ParameterSpec("embedding.word.weight", table, 0, 1, "weight", model.padded_vocab)
    if model.position == "learned":
        shape = (model.max_positions, model.hidden)
        yield ParameterSpec("embedding.position.weight", shape, None, 1, "weight")
    for layer in range(model.layers):
        yield from layer_parameters(model, layer)
    yield from _norm(model, "final_norm")
    if not model.tied:
        yield ParameterSpec("head.weight", table, 0, 1, "weight", model.padded_vocab)
