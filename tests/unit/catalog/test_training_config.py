"""A config.json's values are understood, left out because they change nothing, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.catalog.hf.reader import model_row
from dsforge.catalog.hf.training import training_config
from dsforge.layout.hf_config import config_faults, misfits
from dsforge.layout.shape import resolve_shape

QWEN: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 256,
}
GPT2: dict[str, Any] = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 9}


SMALL = {"vocab_size": 256, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("GPT2", "gpt"),
        ("GPTNeoX", "gpt-neox"),
        ("Llama", "llama"),
        ("Mistral", "llama"),
        ("Mixtral", "mixtral"),
        ("Gemma", "gemma"),
        ("Qwen2", "qwen2"),
        ("Qwen3", "qwen3"),
        ("Qwen3Moe", "qwen3"),
    ],
)
def test_what_a_class_saves_by_itself_is_taken(name: str, arch: str, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    getattr(transformers, f"{name}Config")(**SMALL).save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text("utf-8"))
    shape = resolve_shape("config.json", 64, values)
    assert (shape.arch, shape.layers, shape.hidden, shape.heads, shape.vocab) == (arch, 3, 48, 4, 256)
    assert misfits(shape) == []
    # Read back, what a class is built from describes the same model.
    assert config_faults(training_config(values, "config.json"), values, "read") == []


def test_dropout_ids_and_code_are_left_out():
    extra = {
        "embd_pdrop": 0.5,
        "auto_map": {"AutoModel": "evil.Model"},
        "torch_dtype": "float16",
        "pad_token_id": 3,
        "summary_type": "cls_index",
        "pretraining_tp": 1,
        "n_inner": None,
    }
    assert training_config({**GPT2, **extra}, "config.json") == {
        **GPT2,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def test_what_a_config_says_of_balance_is_the_recipes_to_say():
    """The model's own loss takes no part; noise on the router's input is another model's."""
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    config = {**QWEN, "model_type": "mixtral", **experts, "head_dim": None, "router_jitter_noise": 0.0}
    read = training_config({**config, "output_router_logits": True, "router_aux_loss_coef": 0.3}, "x")
    assert read["output_router_logits"] is False
    assert "router_aux_loss_coef" not in read
    # MixtralConfig would hand null to a scaled RoPE.
    assert read["head_dim"] == 12
    with pytest.raises(DsforgeError, match="router_jitter_noise"):
        training_config({**config, "router_jitter_noise": 0.1}, "x")


@pytest.mark.parametrize(("said", "normalised"), [({}, False), ({"norm_topk_prob": True}, True)])
def test_qwens_shares_add_up_to_1_where_the_config_says_so(said: dict[str, Any], normalised: bool):
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "mlp_only_layers": [1]}
    config = {**QWEN, "model_type": "qwen3_moe", **experts, **said}
    row = model_row(config, "x")["experts"]
    assert (row["normalised"], row["dense_layers"], row["ffn_hidden"]) == (normalised, (1,), 8)
    assert training_config(config, "x").get("norm_topk_prob", False) is normalised


def test_numbers_are_typed_and_both_spellings_of_rope_become_one():
    older = {"rope_theta": 1000000, "rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 32}}
    newer = {
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "beta_fast": 32.0},
        "num_key_value_heads": 4,
    }
    read = training_config({**QWEN, **older, "rms_norm_eps": 1, "initializer_range": 0}, "config.json")
    assert read["rope_parameters"] == newer["rope_parameters"]
    assert {type(value) for key, value in read["rope_parameters"].items() if key != "rope_type"} == {float}
    assert [(read[key], type(read[key])) for key in ("rms_norm_eps", "initializer_range")] == [
        (1.0, float),
        (0.0, float),
    ]
    # Qwen2Config takes 32 for a missing one.
    assert read["num_key_value_heads"] == 4
    assert training_config({**QWEN, **newer}, "config.json") == training_config({**QWEN, **older}, "x")


def test_kinds_of_layers_that_follow_from_the_window_are_taken():
    window = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    read = training_config({**QWEN, **window, "layer_types": kinds}, "config.json")
    assert {key: read[key] for key in window} == window
    assert "layer_types" not in read
    with pytest.raises(DsforgeError, match="layer_types"):
        training_config({**QWEN, "layer_types": kinds}, "config.json")


NEOX = {**{key: QWEN[key] for key in QWEN if key != "model_type"}, "model_type": "gpt_neox"}


def test_rotary_positions_of_gpt_neox_are_read_from_their_older_keys():
    read = training_config({**NEOX, "rotary_pct": 0.5, "rotary_emb_base": 500}, "config.json")
    wanted = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    assert read["rope_parameters"] == wanted
    assert "num_key_value_heads" not in read
    assert training_config(NEOX, "x")["rope_parameters"]["partial_rotary_factor"] == 0.25
    with pytest.raises(DsforgeError, match="partial_rotary_factor"):
        training_config({**NEOX, "partial_rotary_factor": 0.5}, "config.json")


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ({}, "gelu_pytorch_tanh"),
        ({"hidden_act": "gelu"}, "gelu_pytorch_tanh"),
        ({"hidden_act": "gelu", "hidden_activation": "silu"}, "silu"),
    ],
)
def test_gemmas_activation_and_no_row_without_gradient(words: dict[str, Any], read: str):
    config = training_config({**QWEN, "model_type": "gemma", "pad_token_id": 0, **words}, "config.json")
    assert (config["hidden_act"], config["pad_token_id"]) == (read, None)
    assert "hidden_activation" not in config


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"attribute_map": {"hidden_size": "vocab_size"}}, "`attribute_map: "),
        ({"pruned_heads": {"0": [1]}}, "`pruned_heads: "),
        ({"pretraining_tp": 2}, "`pretraining_tp: 2`"),
        ({"quantization_config": {"quant_method": "fp8"}}, "`quantization_config: "),
        ({"per_layer_config": {"0": {"head_dim": 2}}}, "`per_layer_config: "),
        ({"layer_types": ["sliding_attention"] * 3}, "`layer_types: "),
        ({"layer_types": 7}, "`layer_types: 7`"),
        ({"new_in_next_version": True}, "`new_in_next_version: true`"),
        ({"initializer_range": "0.02"}, "`initializer_range: "),
        ({"initializer_range": float("nan")}, "`initializer_range: NaN`"),
        ({"rms_norm_eps": 10**400}, "`rms_norm_eps: "),
        ({"rope_theta": 1}, "`rope_theta: 1`"),
        ({"rope_scaling": {"rope_type": "ntk", "factor": 2.0}}, "`rope_type: "),
        ({"rope_scaling": {"rope_type": ["yarn"]}}, "`rope_type: "),
        ({"rope_scaling": {"type": "yarn"}}, "`factor` "),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "`factor: 0.5`"),
        ({"rope_scaling": {"type": "linear", "factor": 2, "beta_fast": 3}}, "`beta_fast: 3`"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "default"}},
            "rope_",
        ),
        ({"partial_rotary_factor": 0.5}, "`partial_rotary_factor: 0.5`"),
        ({"model_type": "llama", "hidden_size": 50, "head_dim": 12}, "`hidden_size: 50`"),
        ({"model_type": "phi3"}, "`model_type: "),
    ],
)
def test_what_would_change_the_model_is_refused_by_name(changes: dict[str, Any], told: str):
    with pytest.raises(DsforgeError) as caught:
        training_config({**QWEN, **changes}, "config.json")
    assert caught.value.code == "DSF034"
    assert told in caught.value.message
