"""Shapes read from a config.json against the weights that transformers builds from it, one by one."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

from dsforge.catalog.hf.reader import model_types
from dsforge.layout.shape import Shape, resolve_shape
from dsforge.layout.stages import StageLayers, held

_LLAMA: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}
_HEADS: dict[str, Any] = {**_LLAMA, "head_dim": 20}
_WIDE: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 256,
}
_EXPERTS: dict[str, Any] = {"moe_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2}
_LATENT: dict[str, Any] = {
    "kv_lora_rank": 10,
    "q_lora_rank": 14,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "moe_intermediate_size": 24,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0,
}
_FALCON: dict[str, Any] = {**_WIDE, "num_kv_heads": 2}

CASES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **_LLAMA},
    "llama-heads": {"model_type": "llama", **_HEADS, "tie_word_embeddings": True},
    "llama-biases": {"model_type": "llama", **_LLAMA, "attention_bias": True, "mlp_bias": True},
    "mistral": {"model_type": "mistral", **_HEADS},
    "phi3": {"model_type": "phi3", **_LLAMA, "pad_token_id": 0},
    "qwen2": {"model_type": "qwen2", **_LLAMA},
    "qwen3": {"model_type": "qwen3", **_HEADS},
    "qwen3-biases": {"model_type": "qwen3", **_LLAMA, "attention_bias": True},
    "gemma": {"model_type": "gemma", **_HEADS},
    "gemma2": {"model_type": "gemma2", **_HEADS},
    "mixtral": {"model_type": "mixtral", **_LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2-moe": {
        "model_type": "qwen2_moe",
        **_LLAMA,
        **_EXPERTS,
        "shared_expert_intermediate_size": 32,
        "mlp_only_layers": [0],
    },
    "qwen3-moe": {"model_type": "qwen3_moe", **_HEADS, **_EXPERTS, "decoder_sparse_step": 2},
    "deepseek": {"model_type": "deepseek_v3", **_LLAMA, **_LATENT, "n_shared_experts": 2},
    "deepseek-plain-queries": {
        "model_type": "deepseek_v3",
        **_LLAMA,
        **_LATENT,
        "q_lora_rank": None,
        "n_shared_experts": 1,
    },
    "gpt-oss": {"model_type": "gpt_oss", **_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 48,
        "n_layer": 3,
        "n_head": 4,
        "vocab_size": 256,
        "n_positions": 30,
    },
    "gpt2-inner": {
        "model_type": "gpt2",
        "n_embd": 48,
        "n_layer": 3,
        "n_head": 4,
        "vocab_size": 256,
        "n_inner": 64,
    },
    "opt": {"model_type": "opt", **_WIDE, "ffn_dim": 64, "max_position_embeddings": 30},
    "opt-350m-like": {
        "model_type": "opt",
        **_WIDE,
        "ffn_dim": 64,
        "word_embed_proj_dim": 16,
        "do_layer_norm_before": False,
    },
    "opt-unbiased": {"model_type": "opt", **_WIDE, "ffn_dim": 64, "enable_bias": False},
    "bloom": {"model_type": "bloom", "hidden_size": 48, "n_layer": 3, "n_head": 4, "vocab_size": 256},
    "gpt-neox": {"model_type": "gpt_neox", **_WIDE, "intermediate_size": 64},
    "gpt-neox-unbiased": {
        "model_type": "gpt_neox",
        **_WIDE,
        "intermediate_size": 64,
        "attention_bias": False,
    },
    "falcon-new": {"model_type": "falcon", **_FALCON, "new_decoder_architecture": True},
    "falcon-new-one-norm": {
        "model_type": "falcon",
        **_FALCON,
        "new_decoder_architecture": True,
        "num_ln_in_parallel_attn": 1,
    },
    "falcon-old": {"model_type": "falcon", **_WIDE, "multi_query": False, "bias": True, "alibi": True},
    "falcon-serial": {"model_type": "falcon", **_WIDE, "multi_query": False, "parallel_attn": False},
    "falcon-one-key": {"model_type": "falcon", **_WIDE, "multi_query": True},
}

_WHOLE = re.compile(
    # Norms and learned positions; routers and gates; the compressions of latent attention; projections of
    # narrow embeddings; biases that are added after the reduction.
    r"norm|\.ln_|wpe|embed_positions|\.gate\.|router|shared_expert_gate|q_a_proj|kv_a_proj|project_(in|out)"
    r"|(o_proj|out_proj|c_proj|fc2|attention\.dense|dense_4h_to_h|down_proj)[._]bias"
)


@cache
def _built(case: str) -> tuple[Shape, dict[str, int], int]:
    """Return our shape, transformers' parameters by name (tied ones once), and those of the embedding."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**CASES[case])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    saved = json.loads(config.to_json_string())
    named = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return resolve_shape("config.json", 30, saved), named, model.get_input_embeddings().weight.numel()


def test_every_architecture_is_tried_here():
    assert {case["model_type"] for case in CASES.values()} == set(model_types())


@pytest.mark.parametrize("case", CASES)
def test_counts_are_those_of_the_weights(case: str):
    shape, named, embedding = _built(case)
    assert shape.parameters() == sum(named.values())
    assert shape.components()["word_embedding"] == embedding


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_leaves_defaults_out_counts_the_same(case: str):
    assert resolve_shape("config.json", 30, CASES[case]).parameters() == _built(case)[0].parameters()


@pytest.mark.parametrize("case", [case for case in CASES if case != "falcon-one-key"])
def test_a_tensor_parallel_rank_holds_its_share_of_what_is_split_and_the_rest_whole(case: str):
    shape, named, _ = _built(case)
    whole = sum(count for name, count in named.items() if _WHOLE.search(name))
    stage = StageLayers(0, 0, shape.layers, has_embedding=True, has_head=True)
    # The vocabulary, 256, is padded for TP 2 already.
    assert held(shape, stage, 256, 2).total == whole + (sum(named.values()) - whole) // 2


def test_a_single_key_value_head_stands_on_every_rank():
    shape, named, _ = _built("falcon-one-key")
    # Per layer, one head of keys and one of values: 2 x 12 x 48.
    whole = sum(count for name, count in named.items() if _WHOLE.search(name)) + 3 * 2 * 12 * 48
    stage = StageLayers(0, 0, 3, has_embedding=True, has_head=True)
    assert held(shape, stage, 256, 2).total == whole + (sum(named.values()) - whole) // 2
