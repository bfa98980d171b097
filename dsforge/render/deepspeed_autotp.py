"""How DeepSpeed splits the linear layers of a Hugging Face model (AutoTP), written out layer by layer.

What the library would take from the model's own plan differs by version of transformers; these are Megatron's
(Shoeybi et al. 2019): columns of what reads the residual stream, rows of what adds to it.
"""

from __future__ import annotations

from typing import Any

from dsforge.plan.types import Model

_COLUMNS = [r".*\.[qkv]_proj\.weight$", r".*\.(gate|up)_proj\.weight$"]
_ROWS = [r".*\.o_proj\.weight$", r".*\.down_proj\.weight$"]
_HEAD_NORMS = [r".*\.[qk]_norm\.weight$"]
"""Norms of queries and keys are whole on every shard, and each sees some of the heads."""


def autotp_section(model: Model, tp: int) -> dict[str, Any]:
    """Return the section `tensor_parallel`; tables of words, heads and norms stay whole."""
    specs: list[dict[str, Any]] = [
        {"patterns": _COLUMNS, "partition_type": "column"},
        {"patterns": _ROWS, "partition_type": "row"},
    ]
    if model.qk_norm:
        specs.append({"patterns": _HEAD_NORMS, "partition_type": "skip", "grad_allreduce": True})
    return {"autotp_size": tp, "partition_config": {"use_default_specs": False, "layer_specs": specs}}
