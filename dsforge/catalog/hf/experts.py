"""Architectures with experts, read from `config.json`; defaults as in `dense`."""

from __future__ import annotations

from dsforge.catalog.hf.config import Config, Row
from dsforge.catalog.hf.dense import attention_bias, llama_like, qwen_window, window_of


def mixtral(config: Config) -> Row:
    """Return a MixtralConfig: every layer has experts of the full feed-forward width."""
    row = llama_like(config, "mixtral", norm_eps=1.0e-5)
    experts = _experts(config, "num_local_experts", "num_experts_per_tok", row["ffn_hidden"])
    return {**row, "experts": experts, "window": window_of(config, "sliding_window")}


def qwen2_moe(config: Config) -> Row:
    """Return a Qwen2MoeConfig: routed experts and one shared, which a gate weighs."""
    row = llama_like(config, "qwen2-moe")
    experts = _experts(config, "num_experts", "num_experts_per_tok", config.count("moe_intermediate_size"))
    experts |= {
        "normalised": config.flag("norm_topk_prob", default=False),
        "shared_ffn_hidden": config.count("shared_expert_intermediate_size"),
        "shared_gate": True,
        "dense_layers": _dense_layers(config, row["layers"]),
    }
    biased = config.flag("qkv_bias", default=True)
    return {**row, "experts": experts, "qkv_bias": biased, "window": qwen_window(config)}


def qwen3_moe(config: Config) -> Row:
    """Return a Qwen3MoeConfig; its `head_dim` falls back to hidden / heads."""
    row = {**llama_like(config, "qwen3"), **attention_bias(config), "window": qwen_window(config)}
    key = "num_experts" if config.has("num_experts") else "num_local_experts"
    experts = _experts(config, key, "num_experts_per_tok", config.count("moe_intermediate_size"))
    normalised = config.flag("norm_topk_prob", default=False)
    dense = _dense_layers(config, row["layers"])
    return {**row, "experts": {**experts, "normalised": normalised, "dense_layers": dense}}


def deepseek_v3(config: Config) -> Row:
    """Return a DeepseekV3Config, without the module that predicts further tokens (MTP)."""
    config.must("attention_bias", False)
    config.must("moe_layer_freq", 1)
    # Null means that queries are not compressed; a missing key does not say which.
    compressed = config.has("q_lora_rank") or "q_lora_rank" not in config.values
    nope_dim, rope_dim = config.count("qk_nope_head_dim"), config.count("qk_rope_head_dim")
    latent = {
        "q_rank": config.count("q_lora_rank") if compressed else None,
        "kv_rank": config.count("kv_lora_rank"),
        "nope_dim": nope_dim,
        "rope_dim": rope_dim,
        "value_dim": config.count("v_head_dim"),
    }
    # The configuration's own head_dim is the rotary part alone.
    row = llama_like(config.put(head_dim=nope_dim + rope_dim), "deepseek")
    dense = config.count("first_k_dense_replace", 3, least=0)
    key = "n_routed_experts" if config.has("n_routed_experts") else "num_local_experts"
    width = config.count("moe_intermediate_size")
    experts = _experts(config, key, "num_experts_per_tok", width)
    experts["normalised"] = config.flag("norm_topk_prob", default=True)
    experts["shared_ffn_hidden"] = width * config.count("n_shared_experts", least=0)
    experts["dense_layers"] = tuple(range(min(dense, row["layers"])))
    return {**row, "kv_heads": row["heads"], "experts": experts, "latent": latent}


def gpt_oss(config: Config) -> Row:
    """Return a GptOssConfig: biases everywhere, in the router and the experts as well."""
    row = llama_like(config, "gpt-oss", norm_eps=1.0e-5, head_dim=64)
    row |= attention_bias(config, default=True)
    key = "num_local_experts" if config.has("num_local_experts") else "num_experts"
    active = "num_experts_per_tok" if config.has("num_experts_per_tok") else "experts_per_token"
    experts = {**_experts(config, key, active, row["ffn_hidden"]), "router_bias": True}
    return {**row, "experts": experts, "window": window_of(config, "sliding_window", missing=128)}


def _experts(config: Config, count: str, active: str, width: int) -> Row:
    experts = {"count": config.count(count), "active": config.count(active), "ffn_hidden": width}
    if experts["active"] > experts["count"]:
        config.fail(active, f"is more than the {experts['count']} experts")
    return experts


def _dense_layers(config: Config, layers: int) -> tuple[int, ...]:
    """Return the layers without experts: those listed, and all but every `decoder_sparse_step`-th."""
    step = config.count("decoder_sparse_step", 1)
    listed = config.indices("mlp_only_layers", layers)
    return tuple(layer for layer in range(layers) if layer in listed or (layer + 1) % step)
