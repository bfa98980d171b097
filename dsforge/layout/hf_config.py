"""A shape as the values of a Hugging Face `config.json`: the inverse of `catalog.hf.reader`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Literal

from dsforge.base.errors import DsforgeError
from dsforge.catalog.families import GATED, Experts, Traits
from dsforge.catalog.hf.training import training_config
from dsforge.layout.shape import Shape, resolve_shape

_FREE = ("name", "arch", "nominal_parameters", "traits", "experts", "times")
"""Fields of a shape that say nothing of the model, or that are compared one by one."""

HfClass = Literal["gpt2", "gpt_neox", "llama"]
_ACTIVATIONS = {
    "gelu": "gelu_new",
    "gelu-erf": "gelu",
    "relu": "relu",
    "swiglu": "silu",
    "geglu": "gelu_pytorch_tanh",
}
"""Our words in transformers' `ACT2FN`."""


def config_of(shape: Shape) -> dict[str, Any]:
    """Return the values that transformers' class of the shape's family is built from.

    A shape that no class has is described as the nearest that there is: `misfits` tells.
    """
    return _WRITERS[hf_class(shape.traits.position, shape.traits.norm)](shape)


def hf_class(position: str, norm: str) -> HfClass:
    """Return whose class a shape is nearest to; Llama's stands for all that have its tensors."""
    if position == "learned":
        return "gpt2"
    return "gpt_neox" if norm == "layernorm" else "llama"


def _word(traits: Traits, usual: str) -> str:
    """Return what a class calls its activation: the usual one where its MLP cannot be as the shape's."""
    takes = (traits.activation in GATED) == (usual in GATED)
    return _ACTIVATIONS[traits.activation if takes else usual]


def _gpt2(shape: Shape) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "vocab_size": shape.vocab,
        "n_positions": shape.max_positions,
        "n_embd": shape.hidden,
        "n_layer": shape.layers,
        "n_head": shape.heads,
        "n_inner": shape.ffn_hidden,
        "activation_function": _word(shape.traits, "gelu"),
        "layer_norm_epsilon": shape.norm_eps,
        "tie_word_embeddings": shape.tied,
        # GPT2Config's own are those of the released vocabulary.
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _llama_like(shape: Shape) -> dict[str, Any]:
    traits, experts = shape.traits, shape.experts
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
        "hidden_act": _word(traits, "swiglu"),
        "rms_norm_eps": shape.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "tie_word_embeddings": shape.tied,
    }
    if experts is not None:
        config |= _experts(experts, qwen=traits.qk_norm)
        if traits.qk_norm:
            config |= {"attention_bias": traits.qkv_bias}
        elif traits.window is not None:
            config |= {"sliding_window": traits.window}
    elif traits.qk_norm:
        config |= {"model_type": "qwen3", "attention_bias": traits.qkv_bias, **_windowed(shape)}
    elif traits.qkv_bias and not traits.output_bias:
        config |= {"model_type": "qwen2", **_windowed(shape)}
    elif traits.unit_offset_norm:
        # The class's own number would keep that row of the embedding from learning.
        config |= {"model_type": "gemma", "pad_token_id": None}
    elif traits.window is not None:
        config |= {"model_type": "mistral", "sliding_window": traits.window}
    return config


def _experts(experts: Experts, *, qwen: bool) -> dict[str, Any]:
    if not qwen:
        return {
            "model_type": "mixtral",
            "intermediate_size": experts.ffn_hidden,
            "num_local_experts": experts.count,
            "num_experts_per_tok": experts.active,
        }
    return {
        "model_type": "qwen3_moe",
        "moe_intermediate_size": experts.ffn_hidden,
        "num_experts": experts.count,
        "num_experts_per_tok": experts.active,
        "norm_topk_prob": experts.normalised,
        "mlp_only_layers": list(experts.dense_layers),
    }


def _windowed(shape: Shape) -> dict[str, Any]:
    """Return a Qwen's window, which all layers have but the first `max_window_layers`."""
    window, some = shape.traits.window, shape.traits.window_layers
    if window is None:
        return {}
    first = min(some, default=shape.layers) if some is not None else 0
    return {"use_sliding_window": True, "sliding_window": window, "max_window_layers": first}


def _gpt_neox(shape: Shape) -> dict[str, Any]:
    traits = shape.traits
    return {
        "model_type": "gpt_neox",
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.max_positions,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.ffn_hidden,
        "hidden_act": _word(traits, "gelu"),
        "layer_norm_eps": shape.norm_eps,
        "use_parallel_residual": traits.parallel_residual,
        "attention_bias": traits.qkv_bias,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.rope_theta,
            "partial_rotary_factor": traits.rotary_fraction,
        },
        "tie_word_embeddings": shape.tied,
    }


_WRITERS: dict[HfClass, Callable[[Shape], dict[str, Any]]] = {
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama_like,
}


def misfits(shape: Shape) -> list[str]:
    """Return in what the model that `config_of` describes would differ from a shape."""
    try:
        nearest = resolve_shape(shape.name, shape.max_positions, config_of(shape))
    except DsforgeError as error:
        return [f"no such shape ({error.message})"]
    return list(_unlike(nearest, shape))


def config_faults(found: Mapping[str, Any], wanted: Mapping[str, Any], name: str) -> list[str]:
    """Return in what two configs describe different models, or why the found one describes none."""
    should = training_config(wanted, "the plan")
    try:
        faults = list(_unlike(resolve_shape(name, 1, found), resolve_shape("the plan", 1, wanted)))
        is_ = training_config(found, name)
    except DsforgeError as error:
        return [error.message]
    if is_.get("rope_parameters") != should.get("rope_parameters") and not faults:
        faults.append("RoPE scaled otherwise")
    return faults


def _unlike(found: Shape, wanted: Shape) -> Iterator[str]:
    free = {*_FREE}
    if wanted.traits.position != "learned":
        free.add("max_positions")
    if wanted.experts is not None and not wanted.experts.dense_layers:
        free.add("ffn_hidden")  # no layer has it (DSF108)
    pairs: list[tuple[Any, Any]] = [(found, wanted), (found.traits, wanted.traits)]
    if found.experts is not None and wanted.experts is not None:
        pairs.append((found.experts, wanted.experts))
    elif found.experts != wanted.experts:
        yield "no experts" if found.experts is None else f"{found.experts.count} experts"
    for one, other in pairs:
        for field in fields(one):
            is_, should = getattr(one, field.name), getattr(other, field.name)
            if is_ != should and (one is not found or field.name not in free):
                yield f"{field.name} {is_}, not {should}"
