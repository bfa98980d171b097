"""Dense architectures, read from `config.json`; defaults are those of transformers' configuration classes."""

from __future__ import annotations

from dsforge.catalog.hf.config import Config, Row, rotary


def llama_like(
    config: Config, arch: str, *, tied: bool = False, norm_eps: float = 1.0e-6, head_dim: int | None = None
) -> Row:
    """Return what LlamaConfig and its relatives have in common, with the defaults in which they differ."""
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    return {
        "arch": arch,
        "layers": config.count("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.count("num_key_value_heads", heads),
        "head_dim": config.head_dim(hidden, heads, head_dim),
        "ffn_hidden": config.count("intermediate_size"),
        "vocab": config.count("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=tied),
        "norm_eps": config.number("rms_norm_eps", norm_eps),
        "activation": config.activation("hidden_act", "silu", gated=True),
        **rotary(config),
    }


def attention_bias(config: Config, *, default: bool = False) -> Row:
    """Return the biases of all four projections of attention, which one flag sets."""
    biased = config.flag("attention_bias", default=default)
    return {"qkv_bias": biased, "output_bias": biased}


def llama(config: Config) -> Row:
    """Return a LlamaConfig."""
    bias = config.flag("mlp_bias", default=False)
    return {**llama_like(config, "llama"), **attention_bias(config), "mlp_bias": bias}


def mistral(config: Config) -> Row:
    """Return a MistralConfig: Llama's layers, looking back over a window."""
    window = window_of(config, "sliding_window", missing=4096)
    return {**llama_like(config, "llama"), "window": window}


def phi3(config: Config) -> Row:
    """Return a Phi3Config: Llama's layers with fused matrices, and maybe a window."""
    return {**llama_like(config, "llama", norm_eps=1.0e-5), "window": window_of(config, "sliding_window")}


def qwen_window(config: Config) -> int | None:
    """Return the window of the Qwen configurations, which a flag switches on."""
    on = config.flag("use_sliding_window", default=False)
    return window_of(config, "sliding_window", missing=4096) if on else None


def windowed_layers(config: Config, window: int | None) -> Row:
    """Return a window of the dense Qwen configurations, which the first layers are without."""
    layers = config.count("num_hidden_layers")
    first = config.count("max_window_layers", 28, least=0)
    if window is None or first >= layers:
        return {"window": None}
    return {"window": window, "window_layers": tuple(range(first, layers)) if first else None}


def qwen2(config: Config) -> Row:
    """Return a Qwen2Config."""
    return {**llama_like(config, "qwen2"), **windowed_layers(config, qwen_window(config))}


def qwen3(config: Config) -> Row:
    """Return a Qwen3Config."""
    row = {**llama_like(config, "qwen3", head_dim=128), **attention_bias(config)}
    return {**row, **windowed_layers(config, qwen_window(config))}


def gemma_activation(config: Config) -> str:
    """Return the activation of a GemmaConfig, which takes the word gelu for the tanh approximation."""
    word = config.values.get("hidden_activation") or config.values.get("hidden_act")
    known = config.put(hidden_act="gelu_pytorch_tanh" if word in (None, "gelu") else word)
    known.activation("hidden_act", "gelu_pytorch_tanh", gated=True)
    return str(known.values["hidden_act"])


def gemma(config: Config) -> Row:
    """Return a GemmaConfig."""
    row = llama_like(config.put(hidden_act=gemma_activation(config)), "gemma", tied=True, head_dim=256)
    return {**row, **attention_bias(config)}


def gemma2(config: Config) -> Row:
    """Return a Gemma2Config."""
    act = config.values.get("hidden_activation") or "gelu_pytorch_tanh"
    row = llama_like(config.put(hidden_act=act), "gemma2", tied=True, head_dim=256)
    return {**row, **attention_bias(config), "window": window_of(config, "sliding_window", missing=4096)}


def gpt2(config: Config) -> Row:
    """Return a GPT2Config."""
    config.must("add_cross_attention", False)
    config.must("scale_attn_by_inverse_layer_idx", False)
    config.must("scale_attn_weights", True)
    hidden, heads = config.count("n_embd"), config.count("n_head")
    return {
        "arch": "gpt",
        "layers": config.count("n_layer"),
        "hidden": hidden,
        "heads": heads,
        "head_dim": _whole_heads(config, "n_embd", hidden, heads),
        "ffn_hidden": config.count("n_inner", 4 * hidden),
        "vocab": config.count("vocab_size"),
        "max_positions": config.count("n_positions", 1024),
        "tied": config.flag("tie_word_embeddings", default=True),
        "norm_eps": config.number("layer_norm_epsilon", 1.0e-5),
        "activation": config.activation("activation_function", "gelu_new", gated=False),
    }


def opt(config: Config) -> Row:
    """Return an OPTConfig; with norms after the residual there is no final one."""
    config.must("layer_norm_elementwise_affine", True)
    config.must("_remove_final_layer_norm", False)
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    biased = config.flag("enable_bias", default=True)
    before = config.flag("do_layer_norm_before", default=True)
    return {
        "arch": "opt",
        "layers": config.count("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "head_dim": _whole_heads(config, "hidden_size", hidden, heads),
        "ffn_hidden": config.count("ffn_dim"),
        "vocab": config.count("vocab_size"),
        "embedding_width": config.count("word_embed_proj_dim", hidden),
        "max_positions": config.count("max_position_embeddings", 2048),
        "tied": config.flag("tie_word_embeddings", default=True),
        "activation": config.activation("activation_function", "relu", gated=False),
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), biased),
        "post_norm": not before,
        "final_norm": before,
    }


def bloom(config: Config) -> Row:
    """Return a BloomConfig; its feed-forward width is four times the hidden one."""
    hidden = _either(config, "n_embed", "hidden_size")
    heads = _either(config, "n_head", "num_attention_heads")
    return {
        "arch": "bloom",
        "layers": _either(config, "n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "head_dim": _whole_heads(config, "hidden_size", hidden, heads),
        "vocab": config.count("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=True),
        "norm_eps": config.number("layer_norm_epsilon", 1.0e-5),
        "post_norm": config.flag("apply_residual_connection_post_layernorm", default=False),
    }


def gpt_neox(config: Config) -> Row:
    """Return a GPTNeoXConfig."""
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    return {
        "arch": "gpt-neox",
        "layers": config.count("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "head_dim": _whole_heads(config, "hidden_size", hidden, heads),
        "ffn_hidden": config.count("intermediate_size"),
        "vocab": config.count("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=False),
        "norm_eps": config.number("layer_norm_eps", 1.0e-5),
        "activation": config.activation("hidden_act", "gelu", gated=False),
        "parallel_residual": config.flag("use_parallel_residual", default=True),
        **attention_bias(config, default=True),
        **rotary(config, default_fraction=0.25),
    }


def falcon(config: Config) -> Row:
    """Return a FalconConfig of either decoder; the older one may keep a single key-value head."""
    hidden = _either(config, "n_embed", "hidden_size")
    heads = _either(config, "n_head", "num_attention_heads")
    newer = config.flag("new_decoder_architecture", default=False)
    parallel = config.flag("parallel_attn", default=True)
    one = not newer and config.flag("multi_query", default=True)
    config.must("num_ln_in_parallel_attn", None, 1, 2)
    norms = config.count("num_ln_in_parallel_attn", 2 if newer else 1) if parallel else 2
    biased = config.flag("bias", default=False)
    return {
        "arch": "falcon",
        "layers": _either(config, "n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": 1 if one else _either(config, "n_head_kv", "num_kv_heads", heads),
        "head_dim": _whole_heads(config, "hidden_size", hidden, heads),
        "ffn_hidden": config.count("ffn_hidden_size", 4 * hidden),
        "vocab": config.count("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=True),
        "norm_eps": config.number("layer_norm_epsilon", 1.0e-5),
        "activation": config.activation("activation", "gelu", gated=False),
        "position": "alibi" if config.flag("alibi", default=False) else "rope",
        "parallel_residual": parallel,
        "layer_norms": norms,
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), biased),
        **rotary(config),
    }


def window_of(config: Config, key: str, missing: int | None = None) -> int | None:
    """Return a sliding window; null means that every token is seen, a missing key what the class says."""
    if key not in config.values:
        return missing
    return config.count(key) if config.has(key) else None


def _whole_heads(config: Config, key: str, hidden: int, heads: int) -> int:
    if hidden % heads:
        config.fail(key, f"is not a multiple of {heads} heads")
    return hidden // heads


def _either(config: Config, older: str, newer: str, default: int | None = None) -> int:
    """Return a count under its older name, else under its newer one."""
    return config.count(older) if config.has(older) else config.count(newer, default)
