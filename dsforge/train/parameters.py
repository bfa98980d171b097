"""Every parameter of a model under its global name: the same whatever the layout or the engine.

The fused attention weight `linear_qkv` holds, for each group of key-value heads in turn, the group's
query heads, then its key head, then its value head (megatron-core, `core/transformer/attention.py`,
`SelfAttention.get_query_key_value_tensors`). The fused SwiGLU weight `linear_fc1` holds all gate rows,
then all up rows. Each expert has its own, named by its number among all experts of the layer.
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

    @property
    def of_expert(self) -> bool:
        """Whether it is one expert's, which not every rank has."""
        return ".experts." in self.name


def _norm(model: Model, name: str, width: int) -> Iterator[ParameterSpec]:
    yield ParameterSpec(f"{name}.weight", (width,), None, 1, "one")
    if model.norm == "layernorm":
        yield ParameterSpec(f"{name}.bias", (width,), None, 1, "zero")


def _linear(
    name: str, rows: int, columns: int, *, biased: bool, dim: int, stride: int = 1
) -> Iterator[ParameterSpec]:
    kind: Kind = "output" if dim == 1 else "weight"
    yield ParameterSpec(f"{name}.weight", (rows, columns), dim, stride, kind)
    if biased:
        # A row-parallel bias is added after the reduction, so every shard holds all of it.
        yield ParameterSpec(f"{name}.bias", (rows,), 0 if dim == 0 else None, stride, "zero")


def layer_parameters(model: Model, layer: int) -> Iterator[ParameterSpec]:
    """Yield the parameters of one transformer layer, counted from 0."""
    at = f"layers.{layer}"
    heads = model.heads * model.head_dim
    fused = heads + 2 * model.kv_heads * model.head_dim
    gates = 2 if model.activation == "swiglu" else 1
    attention, mlp, biased = f"{at}.self_attention", f"{at}.mlp", model.linear_bias
    yield from _norm(model, f"{at}.input_layernorm", model.hidden)
    yield from _linear(f"{attention}.linear_qkv", fused, model.hidden, biased=model.qkv_bias, dim=0)
    if model.qk_norm:
        yield from _norm(model, f"{attention}.q_layernorm", model.head_dim)
        yield from _norm(model, f"{attention}.k_layernorm", model.head_dim)
    yield from _linear(f"{attention}.linear_proj", model.hidden, heads, biased=biased, dim=1)
    yield from _norm(model, f"{at}.pre_mlp_layernorm", model.hidden)
    experts, width = model.experts, model.ffn_hidden
    places = [mlp]
    if experts is not None and layer not in experts.dense_layers:
        yield ParameterSpec(f"{mlp}.router.weight", (experts.count, model.hidden), None, 1, "weight")
        places = [f"{mlp}.experts.{expert}" for expert in range(experts.count)]
        width = experts.ffn_hidden
    for place in places:
        rows = gates * width
        yield from _linear(f"{place}.linear_fc1", rows, model.hidden, biased=biased, dim=0, stride=gates)
        yield from _linear(f"{place}.linear_fc2", model.hidden, width, biased=biased, dim=1)


def model_parameters(model: Model) -> Iterator[ParameterSpec]:
    """Yield every parameter of a model; a tied weight stands once, as `embedding.word.weight`."""
    table = (model.vocab, model.hidden)
    yield ParameterSpec("embedding.word.weight", table, 0, 1, "weight", model.padded_vocab)
    if model.position == "learned":
        shape = (model.max_positions, model.hidden)
        yield ParameterSpec("embedding.position.weight", shape, None, 1, "weight")
    for layer in range(model.layers):
        yield from layer_parameters(model, layer)
    yield from _norm(model, "final_norm", model.hidden)
    if not model.tied:
        yield ParameterSpec("head.weight", table, 0, 1, "weight", model.padded_vocab)
