"""GPT-NeoX's list of attention, passed on as `attention_config`, as values of the flavour's expressions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dsforge.catalog.engines.neox import attention_kinds

_DENSE = ("global", "flash")
"""Kinds that compute the attention of the recipe's models."""


def attention_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many layers a passed list speaks of, and the first kind in it that is another attention."""
    text = values.get("argument.attention_config")
    if text is None:
        return {}
    kinds = attention_kinds(json.loads(text), values["model.layers"])
    other = next((kind for kind in kinds or () if kind not in _DENSE), None)
    return {
        "argument.attention_layers": len(kinds) if kinds is not None else None,
        "argument.other_attention": other,
    }
