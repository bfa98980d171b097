"""A shape as the values of a Hugging Face `config.json`: the inverse of `catalog.hf.reader`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
"""What the classes of transformers 5 call their dropouts; GPT2Config takes 0.1 for a missing one."""
_FREE = ("name", "arch", "nominal_parameters", "traits")
"""Fields of a shape that say nothing of the model, or that are compared one by one."""


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
        # GPT2Config's own are those of the released vocabulary.
        "bos_token_id": None,
        "eos_token_id": None,
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
    """Return in what the model that `config_of` describes would differ from a shape."""
    return list(_unlike(resolve_shape(shape.name, shape.max_positions, config_of(shape)), shape))


def config_faults(found: Mapping[str, Any], wanted: Mapping[str, Any], name: str) -> list[str]:
    """Return in what two configs describe different models; `name` is the found one's, for messages.

    DsforgeError DSF033, DSF034 when the found one cannot be read.
    """
    faults = list(_unlike(resolve_shape(name, 1, found), resolve_shape("the plan", 1, wanted)))
    if _scaling(found) != _scaling(wanted) and not faults:
        faults.append("RoPE scaled otherwise")
    return faults


def _unlike(found: Shape, wanted: Shape) -> Iterator[str]:
    learned = wanted.traits.position == "learned"
    for one, other in ((found, wanted), (found.traits, wanted.traits)):
        for field in fields(one):
            free = field.name in _FREE or (field.name == "max_positions" and not learned)
            is_, should = getattr(one, field.name), getattr(other, field.name)
            if is_ != should and not free:
                yield f"{field.name} {is_}, not {should}"


def _scaling(config: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    kind = values.pop("rope_type", values.pop("type", "default"))
    return {**{key: value for key, value in values.items() if key != "rope_theta"}, "rope_type": kind}
