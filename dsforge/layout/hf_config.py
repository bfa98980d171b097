"""A shape as the values of a Hugging Face `config.json`: the inverse of `catalog.hf.reader`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dsforge.layout.shape import Shape, resolve_shape

_NOT_OF_THE_MODEL = (
    "_name_or_path",
    "architectures",
    "auto_map",  # names code beside the file, which is never run
    "dtype",
    "torch_dtype",
    "pad_token_id",  # its row of the embedding would get no gradient; samples are never padded here
    "quantization_config",  # of the file's weights; what trains is never quantised
    "transformers_version",
    "use_cache",
)
_DROPOUTS = {
    "gpt2": ("attn_pdrop", "embd_pdrop", "resid_pdrop"),
    "llama": ("attention_dropout",),
    "mistral": ("attention_dropout",),
    "qwen2": ("attention_dropout",),
    "qwen3": ("attention_dropout",),
}
"""What each class of transformers 5 calls its dropouts; GPT2Config sets its own to 0.1 where they are missing."""
_FREE = ("name", "nominal_parameters", "max_positions")
"""Fields of a shape that no RoPE model's config fixes; learned positions are held by `n_positions`."""


def config_of(shape: Shape) -> dict[str, Any]:
    """Return the values that transformers' class of the shape's family is built from.

    A shape that no class has is described as the nearest that there is: `misfits` tells.
    """
    return _gpt2(shape) if shape.traits.position == "learned" else _llama_like(shape)


def _gpt2(shape: Shape) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "vocab_size": shape.vocab,
        "n_positions": shape.max_positions,
        "n_embd": shape.hidden,
        "n_layer": shape.layers,
        "n_head": shape.heads,
        "n_inner": shape.ffn_hidden,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": shape.norm_eps,
        "tie_word_embeddings": shape.tied,
    }


def _llama_like(shape: Shape) -> dict[str, Any]:
    traits = shape.traits
    config = {
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.max_positions,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.ffn_hidden,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "tie_word_embeddings": shape.tied,
    }
    if traits.qk_norm:
        config |= {"model_type": "qwen3", "attention_bias": traits.qkv_bias}
    elif traits.qkv_bias and not traits.output_bias:
        config |= {"model_type": "qwen2"}
    elif traits.window is not None:
        config |= {"model_type": "mistral", "sliding_window": traits.window}
    return config


def for_training(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without what training does not ask it for, and without dropout."""
    kept = {key: value for key, value in values.items() if key not in _NOT_OF_THE_MODEL}
    return kept | dict.fromkeys(_DROPOUTS.get(str(values["model_type"]), ()), 0.0)


def misfits(shape: Shape) -> list[str]:
    """Return the fields in which the model that `config_of` describes would differ from a shape."""
    built = resolve_shape(shape.name, shape.max_positions, config_of(shape))
    return unlike(built, shape)


def unlike(built: Shape, wanted: Shape) -> list[str]:
    """Return the fields in which two shapes differ, in words; names and RoPE's longest length may."""
    found = []
    for field in fields(Shape):
        one, other = getattr(built, field.name), getattr(wanted, field.name)
        free = field.name in _FREE and (field.name != "max_positions" or wanted.traits.position != "learned")
        if one != other and not free and field.name not in ("arch", "traits"):
            found.append(f"{field.name} {one}, not {other}")
    for field in fields(type(wanted.traits)):
        one, other = getattr(built.traits, field.name), getattr(wanted.traits, field.name)
        if one != other:
            found.append(f"{field.name} {one}, not {other}")
    return found
