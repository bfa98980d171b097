"""The tensors of a Hugging Face model, known from its shape alone: what its files must hold.

The trainer compares the files with the model itself, too; this needs neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsforge.layout.hf_experts import Tensor, expert_tensors, layers_with_experts
from dsforge.layout.shape import Shape, resolve_shape


@dataclass(frozen=True, slots=True)
class Tensors:
    """Name to shape; the bare model's prefix, which files may lack; names that may hold a tensor again."""

    shapes: dict[str, tuple[int, ...]]
    prefix: str
    tied: tuple[str, ...]


def tensors_of(hf_config: Mapping[str, Any]) -> Tensors:
    """Return the tensors of the causal language model that a plan's config describes."""
    shape = resolve_shape("the plan", 1, hf_config)
    gpt2 = shape.traits.position == "learned"
    shapes = dict(_gpt2(shape) if gpt2 else _llama_like(shape))
    if not shape.tied:
        shapes["lm_head.weight"] = (shape.vocab, shape.hidden)
    tied = ("lm_head.weight",) if shape.tied else ()
    return Tensors(shapes, "transformer" if gpt2 else "model", tied)


def _gpt2(shape: Shape) -> Iterator[Tensor]:
    hidden, ffn = shape.hidden, shape.ffn_hidden
    yield "transformer.wte.weight", (shape.vocab, hidden)
    yield "transformer.wpe.weight", (shape.max_positions, hidden)
    for layer in range(shape.layers):
        at = f"transformer.h.{layer}"
        yield from _norm(f"{at}.ln_1", hidden)
        yield from _conv(f"{at}.attn.c_attn", hidden, 3 * hidden)
        yield from _conv(f"{at}.attn.c_proj", hidden, hidden)
        yield from _norm(f"{at}.ln_2", hidden)
        yield from _conv(f"{at}.mlp.c_fc", hidden, ffn)
        yield from _conv(f"{at}.mlp.c_proj", ffn, hidden)
    yield from _norm("transformer.ln_f", hidden)


def _norm(name: str, width: int) -> Iterator[Tensor]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _conv(name: str, columns: int, rows: int) -> Iterator[Tensor]:
    """Yield a Conv1D, whose weight is a linear layer's transposed."""
    yield f"{name}.weight", (columns, rows)
    yield f"{name}.bias", (rows,)


def _llama_like(shape: Shape) -> Iterator[Tensor]:
    traits, hidden, width = shape.traits, shape.hidden, shape.head_dim
    queries, keys = shape.heads * width, shape.kv_heads * width
    yield "model.embed_tokens.weight", (shape.vocab, hidden)
    for layer in range(shape.layers):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", (hidden,)
        for letter, rows in (("q", queries), ("k", keys), ("v", keys)):
            yield from _linear(f"{at}.self_attn.{letter}_proj", rows, hidden, biased=traits.qkv_bias)
        yield from _linear(f"{at}.self_attn.o_proj", hidden, queries, biased=traits.output_bias)
        if traits.qk_norm:
            yield f"{at}.self_attn.q_norm.weight", (width,)
            yield f"{at}.self_attn.k_norm.weight", (width,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
        if layer in layers_with_experts(shape):
            yield from expert_tensors(shape, layer)
            continue
        for name in ("gate", "up"):
            yield from _linear(f"{at}.mlp.{name}_proj", shape.ffn_hidden, hidden, biased=traits.mlp_bias)
        yield from _linear(f"{at}.mlp.down_proj", hidden, shape.ffn_hidden, biased=traits.mlp_bias)
    yield "model.norm.weight", (hidden,)


def _linear(name: str, rows: int, columns: int, *, biased: bool) -> Iterator[Tensor]:
    yield f"{name}.weight", (rows, columns)
    if biased:
        yield f"{name}.bias", (rows,)
