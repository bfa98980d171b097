"""Checked access to the values of a `config.json`: what would change the count is right or an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from dsforge.base.errors import DsforgeError
from dsforge.base.limits import MOST_HEADS, MOST_HIDDEN, MOST_LAYERS, MOST_VOCAB

Row = dict[str, Any]
"""A model in the catalogue's own words, as in `data/models.yaml`."""

_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu-erf",
    "gelu_python": "gelu-erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
}
"""Words of transformers' `ACT2FN`; the tanh approximations differ from one another by rounding only."""
_GATED = {"silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu", "gelu_new": "geglu"}
_LARGEST = 10**9
_HEADS = ("num_attention_heads", "num_key_value_heads", "n_head", "n_head_kv", "num_kv_heads")
_LIMITS = {
    **dict.fromkeys(("num_hidden_layers", "n_layer"), MOST_LAYERS),
    **dict.fromkeys(_HEADS, MOST_HEADS),
    **dict.fromkeys(("hidden_size", "n_embd", "n_embed"), MOST_HIDDEN),
    "vocab_size": MOST_VOCAB,
}
"""What a count may be at most by its key, where that is not `_LARGEST`."""
_LARGEST_FLOAT = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Config:
    """A parsed `config.json` and the name to call it by in messages."""

    values: Mapping[str, Any]
    name: str

    def fail(self, key: str, reason: str, hint: str | None = None) -> NoReturn:
        """Raise DSF034 about one key."""
        word = shown(key)[1:-1]
        place = f"`{word}: {shown(self.values[key])}`" if key in self.values else f"`{word}`"
        raise DsforgeError("DSF034", f"{place} of {self.name} {reason}", hint=hint or f"correct `{word}`")

    def put(self, **values: Any) -> Config:
        """Return a config with some values set."""
        return Config({**self.values, **values}, self.name)

    def has(self, key: str) -> bool:
        """Tell whether a key is set to something other than null."""
        return self.values.get(key) is not None

    def count(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a whole number; a missing key without a default is an error."""
        value = self.values.get(key)
        if value is None:
            if default is None:
                self.fail(key, "is missing", f"add `{key}`")
            return default
        most = _LIMITS.get(key, _LARGEST)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.fail(key, f"is not a whole number from {least} to {most}")
        return value

    def number(self, key: str, default: float) -> float:
        """Return a positive number."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LARGEST_FLOAT:
            self.fail(key, "is not a positive number")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(key, "is neither true nor false")
        return value

    def must(self, key: str, *legal: Any) -> None:
        """Refuse a value other than the known ones; the first is what a missing key means."""
        value = self.values.get(key, legal[0])
        if not any(value == known and isinstance(value, bool) == isinstance(known, bool) for known in legal):
            self.fail(key, f"is not known here: only {_listed(legal)} is", "write the shape out instead")

    def activation(self, key: str, default: str, *, gated: bool) -> str:
        """Return our word for an activation."""
        known = _GATED if gated else _ACTIVATIONS
        value = self.values.get(key)
        word = default if value is None else value
        if not isinstance(word, str) or word not in known:
            self.fail(key, "is no activation known here", f"known: {', '.join(known)}")
        return known[word]

    def head_dim(self, hidden: int, heads: int, default: int | None = None) -> int:
        """Return `head_dim`, else the default, else the width over the heads, which must divide it."""
        if default is not None or self.has("head_dim"):
            return self.count("head_dim", default)
        if hidden % heads:
            self.fail("num_attention_heads", f"does not divide the width {hidden}", "set `head_dim`")
        return hidden // heads

    def indices(self, key: str, below: int) -> tuple[int, ...]:
        """Return a list of distinct layer numbers; missing means none."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.fail(key, "is not a list of layers")
        if any(
            isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < below for item in value
        ):
            self.fail(key, f"does not list layers from 0 to {below - 1}")
        return tuple(sorted(set(value)))


def rotary(config: Config, default_theta: float = 10_000.0, default_fraction: float = 1.0) -> Row:
    """Return base, share and scaling of rotary positions, from `rope_parameters` or the older keys."""
    for key in ("rope_parameters", "rope_scaling"):
        if config.has(key) and not isinstance(config.values[key], Mapping):
            config.fail(key, "is not a mapping")
    given = config.values.get("rope_scaling") or config.values.get("rope_parameters") or {}
    scaling = Config(given, f"{config.name}, its RoPE")
    kind = scaling.values.get("rope_type", scaling.values.get("type", "default"))
    theta = config.number("rotary_emb_base", config.number("rope_theta", default_theta))
    fraction = config.number("rotary_pct", config.number("partial_rotary_factor", default_fraction))
    if (share := scaling.number("partial_rotary_factor", fraction)) > 1.0:
        key = "rotary_pct" if config.has("rotary_pct") else "partial_rotary_factor"
        (scaling if scaling.has("partial_rotary_factor") else config).fail(key, "is more than a whole head")
    return {
        "rope_theta": scaling.number("rope_theta", theta),
        "rotary_fraction": share,
        "rope_scaling": kind != "default",
    }


def _listed(values: Sequence[Any]) -> str:
    return " or ".join(f"`{shown(value)}`" for value in values)


def shown(value: Any) -> str:
    """Return a value as a message shows it: JSON, not too long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "[" * 61
    # Half of a surrogate pair is legal in JSON and cannot be written anywhere else.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 60 else f"{text[:57]}..."
