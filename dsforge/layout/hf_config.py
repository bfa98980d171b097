"""A shape as the values of a Hugging Face `config.json`: the inverse of `catalog.hf.reader`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.catalog.families import Experts
from dsforge.catalog.hf.training import training_config
from dsforge.layout.shape import Shape, resolve_shape

_FREE = ("name", "arch", "nominal_parameters", "traits", "experts")
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
        "hidden_act": "silu",
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
        config |= {"model_type": "qwen3", "attention_bias": traits.qkv_bias}
    elif traits.qkv_bias and not traits.output_bias:
        config |= {"model_type": "qwen2"}
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


def misfits(shape: Shape) -> list[str]:
    """Return in what the model that `config_of` describes would differ from a shape."""
    return list(_unlike(resolve_shape(shape.name, shape.max_positions, config_of(shape)), shape))


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
    learned = wanted.traits.position == "learned"
    pairs: list[tuple[Any, Any]] = [(found, wanted), (found.traits, wanted.traits)]
    if found.experts is not None and wanted.experts is not None:
        pairs.append((found.experts, wanted.experts))
    elif found.experts != wanted.experts:
        yield "no experts" if found.experts is None else f"{found.experts.count} experts"
    for one, other in pairs:
        for field in fields(one):
            free = field.name in _FREE or (field.name == "max_positions" and not learned)
            is_, should = getattr(one, field.name), getattr(other, field.name)
            if is_ != should and not free:
                yield f"{field.name} {is_}, not {should}"
