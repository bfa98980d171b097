"""From a parsed `config.json` to what a model is trained from: every key is understood or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from dsforge.catalog.hf.config import Config
from dsforge.catalog.yaml_tables import table

Read = Callable[[Config, str], Any]
"""Reads one key that is not null, or raises DSF034."""


def training_config(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return what transformers' class of a config that `model_row` has read is built from, without dropout.

    Null stands for the class's own value but for a window, where it means none. DsforgeError DSF034 for a
    value that the class would refuse, and for a key that changes the model, or may, and is not known here.
    """
    config, model_type = Config(values, name), values["model_type"]
    if model_type not in _MODELS:
        config.fail("model_type", "is not trained here", f"known: {', '.join(_MODELS)}")
    readers, fixed = _MODELS[model_type], _FIXED[model_type]
    kept: dict[str, Any] = {"model_type": model_type}
    for key, value in values.items():
        if key in readers:
            if value is not None:
                kept[key] = readers[key](config, key)
            elif key == "sliding_window":
                kept[key] = None
        elif key in _UNCHANGED:
            config.must(key, None, *_UNCHANGED[key])
        elif key not in _dropped() and key not in fixed and key not in _ROTARY:
            config.fail(key, "is not known here, and may change the model", "remove it")
    if model_type != "gpt2":
        kept |= _llama_like(config)
    return kept | fixed


@cache
def _dropped() -> frozenset[str]:
    """Return the keys that change nothing for a causal language model in training."""
    return frozenset(key for keys in table("config_keys").values() for key in keys)


def _llama_like(config: Config) -> dict[str, Any]:
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    if config.values["model_type"] == "llama" and hidden % heads:
        config.fail("hidden_size", f"is not a multiple of {heads} heads, which LlamaConfig asks for")
    _check_layer_types(config)
    # Some classes take a number of their own for a missing one, and Mixtral's scaled RoPE none.
    return {
        "num_key_value_heads": config.count("num_key_value_heads", heads),
        "rope_parameters": rope(config),
        **({"head_dim": config.head_dim(hidden, heads)} if config.values["model_type"] == "mixtral" else {}),
    }


def _check_layer_types(config: Config) -> None:
    """Refuse kinds of layers other than those which the class derives from the window."""
    if not config.has("layer_types"):
        return
    layers = config.count("num_hidden_layers")
    first = layers
    if (
        config.flag("use_sliding_window", default=False)
        and config.values.get("sliding_window", 1) is not None
    ):
        first = config.count("max_window_layers", 28, least=0)
    derived = ["full_attention" if layer < first else "sliding_attention" for layer in range(layers)]
    if config.values["layer_types"] != derived or config.values["model_type"] not in ("qwen2", "qwen3"):
        config.fail("layer_types", "does not follow from the window", "remove `layer_types`")


def rope(config: Config) -> dict[str, Any]:
    """Return `rope_parameters` of a config that may have the older keys; DSF034 for what is not known."""
    older, newer = config.values.get("rope_scaling"), config.values.get("rope_parameters")
    if older and newer and older != newer:
        config.fail("rope_scaling", "is not `rope_parameters`, which is there too", "remove one of them")
    config.must("partial_rotary_factor", None, 1.0)
    given = Config(older or newer or {}, f"{config.name}, {'rope_scaling' if older else 'rope_parameters'}")
    word = "rope_type" if "rope_type" in given.values else "type"
    kind = given.values.get(word, "default")
    if not isinstance(kind, str) or kind not in _SCALINGS:
        given.fail(word, "is no scaling known here", f"known: {', '.join(_SCALINGS)}")
    readers = _SCALINGS[kind]
    theta = given.number("rope_theta", config.number("rope_theta", 10_000.0))
    if theta <= 1.0:
        (given if given.has("rope_theta") else config).fail("rope_theta", "is not above 1")
    read: dict[str, Any] = {"rope_type": kind, "rope_theta": theta}
    given.must("partial_rotary_factor", None, 1.0)
    for key, value in given.values.items():
        if key in readers and value is not None:
            read[key] = readers[key](given, key)
        elif key not in ("rope_type", "type", "rope_theta", "partial_rotary_factor") and value is not None:
            given.fail(key, f"is no parameter of {kind}", "remove it")
    for key in _NEEDED[kind]:
        if key not in read:
            given.fail(key, "is missing", f"add `{key}`")
    if kind == "llama3" and read["low_freq_factor"] >= read["high_freq_factor"]:
        given.fail("low_freq_factor", "is not below high_freq_factor")
    return read


def _count(config: Config, key: str) -> int:
    return config.count(key)


def _index(config: Config, key: str) -> int:
    return config.count(key, least=0)


def _number(config: Config, key: str) -> float:
    return config.number(key, 1.0)


def _factor(config: Config, key: str) -> float:
    factor = config.number(key, 1.0)
    if factor < 1.0:
        config.fail(key, "is not at least 1")
    return factor


def _flag(config: Config, key: str) -> bool:
    return config.flag(key, default=False)


def _layers(config: Config, key: str) -> list[int]:
    return list(config.indices(key, config.count("num_hidden_layers")))


def _fraction(config: Config, key: str) -> float:
    value = config.values[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        config.fail(key, "is not a number from 0 to 1")
    return float(value)


def _gated(config: Config, key: str) -> str:
    config.activation(key, "silu", gated=True)
    return str(config.values[key])


def _plain(config: Config, key: str) -> str:
    config.activation(key, "gelu_new", gated=False)
    return str(config.values[key])


_LLAMA_LIKE: dict[str, Read] = {
    **dict.fromkeys(
        (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "max_position_embeddings",
        ),
        _count,
    ),
    "hidden_act": _gated,
    "initializer_range": _fraction,
    "rms_norm_eps": _number,
    "tie_word_embeddings": _flag,
}
_QWEN: dict[str, Read] = {
    **_LLAMA_LIKE,
    "use_sliding_window": _flag,
    "sliding_window": _count,
    "max_window_layers": _index,
}
_MODELS: dict[str, dict[str, Read]] = {
    "gpt2": {
        **dict.fromkeys(("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner"), _count),
        "activation_function": _plain,
        "initializer_range": _fraction,
        "layer_norm_epsilon": _number,
        "tie_word_embeddings": _flag,
    },
    "llama": {**_LLAMA_LIKE, "attention_bias": _flag, "mlp_bias": _flag},
    "mistral": {**_LLAMA_LIKE, "sliding_window": _count},
    "mixtral": {
        **_LLAMA_LIKE,
        **dict.fromkeys(("sliding_window", "num_local_experts", "num_experts_per_tok"), _count),
    },
    "qwen2": _QWEN,
    "qwen3": {**_QWEN, "attention_bias": _flag},
    "qwen3_moe": {
        **_LLAMA_LIKE,
        **dict.fromkeys(("num_experts", "num_local_experts", "num_experts_per_tok"), _count),
        **dict.fromkeys(("moe_intermediate_size", "decoder_sparse_step", "sliding_window"), _count),
        **dict.fromkeys(("use_sliding_window", "attention_bias", "norm_topk_prob"), _flag),
        "mlp_only_layers": _layers,
    },
}
"""model_type: the keys of the class that shape the model."""
_FIXED: dict[str, dict[str, Any]] = {
    # The tokens are those of the released vocabulary, which a class would take for a missing key.
    "gpt2": {
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
        **dict.fromkeys(("bos_token_id", "eos_token_id")),
    },
    **{key: {"attention_dropout": 0.0} for key in ("llama", "mistral", "qwen2", "qwen3")},
    # With it the model's own loss would have a part that the recipe's `balance_loss` stands for.
    **{key: {"attention_dropout": 0.0, "output_router_logits": False} for key in ("mixtral", "qwen3_moe")},
}
"""model_type: what is set whatever the file says."""
_SCALINGS: dict[str, dict[str, Read]] = {
    "default": {},
    "linear": {"factor": _factor},
    "dynamic": {"factor": _factor},
    "yarn": {
        "factor": _factor,
        "original_max_position_embeddings": _count,
        **dict.fromkeys(("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"), _number),
        "truncate": _flag,
    },
    "llama3": {
        "factor": _factor,
        "original_max_position_embeddings": _count,
        "low_freq_factor": _number,
        "high_freq_factor": _number,
    },
}
"""rope_type: its parameters."""
_NEEDED: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}
_ROTARY = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "layer_types")
"""Keys that are looked at together."""
_UNCHANGED: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "chunk_size_feed_forward": (0,),
    "is_encoder_decoder": (False,),
    "pretraining_tp": (1,),
    "pruned_heads": ({},),
    "quantization_config": (),
    "reorder_and_upcast_attn": (False,),
    "router_jitter_noise": (0.0,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True,),
    "tie_encoder_decoder": (False,),
    "torchscript": (False,),
    "use_bfloat16": (False,),
    "use_mrope": (False,),
}
"""Keys that would change the model, and the values (besides null) with which they do not."""
