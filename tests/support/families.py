"""A small shape of each family, and Hugging Face's configuration of it, written by hand."""

from __future__ import annotations

from typing import Any

LENGTH, VOCAB, WINDOW = 24, 71, 7
_LLAMA = {"hidden": 48, "heads": 6, "kv_heads": 2, "head_dim": 8, "ffn_hidden": 80}
_GPT = {"hidden": 48, "heads": 6, "kv_heads": 6, "head_dim": 8, "ffn_hidden": 96}


def _experts(count: int, active: int) -> dict[str, Any]:
    return {"ffn_hidden": None, "experts": {"count": count, "active": active, "ffn_hidden": 40}}


SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"arch": "gpt", **_GPT, "max_positions": LENGTH + 1},
    "llama": {"arch": "llama", **_LLAMA, "rope_theta": 5e5},
    "mistral": {"arch": "llama", **_LLAMA, "window": WINDOW},
    "qwen2": {"arch": "qwen2", **_LLAMA},
    "qwen2-window": {"arch": "qwen2", **_LLAMA, "window": WINDOW},
    "qwen3": {"arch": "qwen3", **_LLAMA, "head_dim": 12, "tied": True},
    "gpt-neox": {"arch": "gpt-neox", **_GPT},
    "pythia": {"arch": "gpt-neox", **_GPT, "rotary_fraction": 0.5, "activation": "gelu-erf"},
    "neox-in-turn": {"arch": "gpt-neox", **_GPT, "parallel_residual": False, "tied": True},
    "gemma": {"arch": "gemma", **_LLAMA, "head_dim": 16},
    "mixtral": {"arch": "mixtral", **_LLAMA, **_experts(4, 2), "rope_theta": 1e6},
    "qwen3-moe": {"arch": "qwen3", **_LLAMA, **_experts(6, 3), "head_dim": 12},
}
_OF_SHAPE = {"vocab_size": VOCAB, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6}
_GROUPED = {**_OF_SHAPE, "intermediate_size": 80, "num_key_value_heads": 2, "head_dim": 8}
_QWEN2 = {"model_type": "qwen2", **_GROUPED}
_NEOX = {**_OF_SHAPE, "model_type": "gpt_neox", "intermediate_size": 96, "hidden_act": "gelu_fast"}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "vocab_size": VOCAB, "n_embd": 48, "n_layer": 2, "n_head": 6}
    | {"n_inner": 96, "n_positions": LENGTH + 1, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0},
    "llama": {"model_type": "llama", **_GROUPED, "rms_norm_eps": 1e-5, "rope_theta": 5e5},
    "mistral": {"model_type": "mistral", **_GROUPED, "rms_norm_eps": 1e-5, "sliding_window": WINDOW},
    "qwen2": _QWEN2,
    "qwen2-window": _QWEN2 | {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 0},
    "qwen3": {"model_type": "qwen3", **_GROUPED, "head_dim": 12, "tie_word_embeddings": True},
    "gpt-neox": _NEOX,
    "pythia": {**_NEOX, "hidden_act": "gelu", "rotary_pct": 0.5},
    "neox-in-turn": {**_NEOX, "use_parallel_residual": False, "tie_word_embeddings": True},
    "gemma": {"model_type": "gemma", **_GROUPED, "head_dim": 16, "hidden_act": "gelu", "pad_token_id": None},
    "mixtral": {**_GROUPED, "model_type": "mixtral", "intermediate_size": 40, "rms_norm_eps": 1e-5}
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "rope_theta": 1e6},
    "qwen3-moe": {**_GROUPED, "model_type": "qwen3_moe", "head_dim": 12, "moe_intermediate_size": 40}
    | {"num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": True},
}
LOSS, GRADIENT = 2e-6, 1e-6
"""Largest differences from Hugging Face's class: of a loss (nats a token), of an entry of a gradient."""


def layered(family: str) -> tuple[str, ...]:
    """Return the trainers that build a family from layers of their own."""
    return ("megatron-core",) if "experts" in SHAPES[family] else ("forge", "megatron-core")
