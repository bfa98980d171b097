"""The model of a plan, from its shape."""

from __future__ import annotations

from typing import Any

from dsforge.external.values import INIT_STD
from dsforge.layout.shape import Shape
from dsforge.plan.types import Model

_AS_THEY_ARE = (
    *("activation", "qkv_bias", "qk_norm", "parallel_residual", "rotary_fraction"),
    *("window", "window_layers", "unit_offset_norm", "scaled_embedding"),
)
"""Traits that a plan has under their own names."""


def model_of(shape: Shape, padded_vocab: int, hf_config: dict[str, Any] | None = None) -> Model:
    """Return a shape as a plan has it, with what a `config.json` says besides."""
    traits = shape.traits
    return Model(
        name=shape.name,
        arch=shape.arch,
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        ffn_hidden=shape.ffn_hidden,
        vocab=shape.vocab,
        padded_vocab=padded_vocab,
        max_positions=shape.max_positions,
        tied=shape.tied,
        norm=traits.norm,
        norm_eps=shape.norm_eps,
        position=traits.position,
        rope_theta=shape.rope_theta,
        linear_bias=traits.qkv_bias and traits.output_bias and traits.mlp_bias,
        **{name: getattr(traits, name) for name in _AS_THEY_ARE},
        init_std=(hf_config or {}).get("initializer_range", INIT_STD),
        hf_config=hf_config,
        experts=shape.experts,
        latent=shape.latent,
    )
