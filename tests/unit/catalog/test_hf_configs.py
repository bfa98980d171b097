"""What a config.json says is taken at its word, and what is not known is an error, never a guess."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.catalog.hf.reader import model_row
from dsforge.layout.shape import resolve_shape

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}
DEEPSEEK: dict[str, Any] = {
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8"},
}
FALCON_7B: dict[str, Any] = {
    "architectures": ["FalconForCausalLM"],
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "multi_query": True,
    "parallel_attn": True,
    "bias": False,
    "alibi": False,
    "new_decoder_architecture": False,
    "vocab_size": 65024,
}


def count(config: dict[str, Any], **changes: Any) -> int:
    return resolve_shape("config.json", 2048, {**config, **changes}).parameters()


def test_released_configurations_count_as_published():
    assert count(LLAMA) == 8_030_261_248
    assert count(DEEPSEEK) == 671_026_404_352
    assert count(FALCON_7B) == 6_921_720_704


def test_a_llama_file_is_the_preset_of_the_same_sizes():
    read = resolve_shape("config.json", 8192, LLAMA)
    preset = resolve_shape("llama3-8b", 8192)
    assert read.traits == preset.traits
    assert (read.rope_theta, read.norm_eps, read.tied) == (preset.rope_theta, preset.norm_eps, preset.tied)


def test_values_that_change_the_count_change_it():
    assert count(LLAMA, tie_word_embeddings=True) == 8_030_261_248 - 128_256 * 4096
    # Q, K and V of 4,096 + 2 x 1,024, and the output's 4,096, in 32 layers.
    assert count(LLAMA, attention_bias=True) == 8_030_261_248 + 32 * (6144 + 4096)
    assert count(LLAMA, num_key_value_heads=None) == 8_030_261_248 + 32 * 2 * 4096 * 3072
    assert count(LLAMA, head_dim=64) == 8_030_261_248 - 671_088_640


@pytest.mark.parametrize(
    ("changes", "scaled", "theta"),
    [
        ({"rope_scaling": None}, False, 500_000.0),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, True, 500_000.0),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, True, 500_000.0),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7e5}}, False, 700_000.0),
    ],
)
def test_rotary_positions_in_both_spellings(changes: dict[str, Any], scaled: bool, theta: float):
    row = model_row({**LLAMA, **changes}, "config.json")
    assert (row["rope_scaling"], row["rope_theta"]) == (scaled, theta)


@pytest.mark.parametrize("model_type", ["mamba", "t5", None, 7, ["llama"]])
def test_an_unknown_architecture_is_named(model_type: Any):
    config = {**LLAMA, "model_type": model_type} if model_type is not None else {"hidden_size": 8}
    with pytest.raises(DsforgeError) as caught:
        model_row(config, "x/config.json")
    assert caught.value.code == "DSF033"
    assert "`model_type" in caught.value.message
    assert "x/config.json" in caught.value.message
    assert (json.dumps(model_type) if model_type else "") in caught.value.message
    assert "llama" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": True}, "vocab_size"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"intermediate_size": 1.5}, "intermediate_size"),
        ({"num_attention_heads": 33}, "num_attention_heads"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"hidden_act": 3}, "hidden_act"),
        ({"attention_bias": "no"}, "attention_bias"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"partial_rotary_factor": 1e308}, "partial_rotary_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 2}}, "partial_rotary_factor"),
    ],
)
def test_an_unknown_value_is_an_error_that_names_its_key(changes: dict[str, Any], key: str):
    with pytest.raises(DsforgeError) as caught:
        model_row({**LLAMA, **changes}, "config.json")
    assert caught.value.code == "DSF034"
    assert caught.value.message.startswith(f"`{key}")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_experts_per_tok": 300}, "num_experts_per_tok"),
        ({"moe_layer_freq": 2}, "moe_layer_freq"),
        ({"attention_bias": True}, "attention_bias"),
        ({"n_shared_experts": None}, "n_shared_experts"),
    ],
)
def test_unknown_values_of_experts(changes: dict[str, Any], key: str):
    with pytest.raises(DsforgeError) as caught:
        model_row({**DEEPSEEK, **changes}, "config.json")
    assert (caught.value.code, caught.value.message.startswith(f"`{key}")) == ("DSF034", True)


@pytest.mark.parametrize(
    ("model_type", "changes", "layers"),
    [
        ("qwen2", {"max_window_layers": 1}, (1, 2)),
        ("qwen3", {"max_window_layers": 0}, None),
        # Every second one of the first.
        ("qwen2_moe", {"max_window_layers": 3}, (0, 2)),
    ],
)
def test_which_layers_have_a_qwens_window(model_type: str, changes: dict[str, Any], layers: Any):
    moe = {"moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "num_experts": 4}
    moe |= {"num_experts_per_tok": 2}
    config = {
        **LLAMA,
        **moe,
        "model_type": model_type,
        "num_hidden_layers": 3,
        "sliding_window": 5,
        **changes,
    }
    config["architectures"] = None
    row = model_row({**config, "use_sliding_window": True}, "c")
    assert (row["window"], row["window_layers"]) == (5, layers)
    assert model_row(config, "c").get("window") is None


def test_no_layer_of_a_qwen_is_left_for_its_window():
    config = {**LLAMA, "architectures": None, "model_type": "qwen2", "use_sliding_window": True}
    assert model_row({**config, "num_hidden_layers": 28}, "c")["window"] is None


def test_a_single_key_value_head_only_in_the_older_falcon():
    assert model_row(FALCON_7B, "c")["kv_heads"] == 1
    newer = {**FALCON_7B, "new_decoder_architecture": True, "num_kv_heads": 71}
    assert (model_row(newer, "c")["kv_heads"], model_row(newer, "c")["layer_norms"]) == (71, 2)


@pytest.mark.parametrize(
    ("config", "key", "value", "most"),
    [
        (LLAMA, "num_hidden_layers", 10_001, 10_000),
        (LLAMA, "num_hidden_layers", 10**9, 10_000),
        (LLAMA, "num_attention_heads", 10**6 + 1, 10**6),
        (LLAMA, "num_key_value_heads", 10**6 + 1, 10**6),
        (LLAMA, "hidden_size", 10**7 + 1, 10**7),
        (LLAMA, "vocab_size", 10**9 + 1, 10**9),
        (DEEPSEEK, "num_hidden_layers", 10**9, 10_000),
        (FALCON_7B, "num_hidden_layers", 10**9, 10_000),
        (FALCON_7B, "n_layer", 10**9, 10_000),
    ],
)
def test_a_model_larger_than_a_recipe_may_write_out_is_refused_by_its_key(config, key, value, most):
    with pytest.raises(DsforgeError, match=f"`{key}: {value}` .* from 1 to {most}$") as caught:
        model_row({**config, key: value}, "config.json")
    assert caught.value.code == "DSF034"


def test_a_number_beyond_a_float_is_refused():
    with pytest.raises(DsforgeError, match="`rope_theta: 1000") as caught:
        model_row({**LLAMA, "rope_theta": 10**400}, "config.json")
    assert caught.value.code == "DSF034"
