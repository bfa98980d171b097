"""Where DeepSpeed keeps states besides the device: the offload sections of its configuration."""

from __future__ import annotations

from typing import Any

from dsforge.plan.types import Model, Plan

AIO = {
    "block_size": 1_048_576,
    "queue_depth": 8,
    "intra_op_parallelism": 1,
    "single_submit": False,
    "overlap_events": True,
}
"""How the disk is read and written: the library's own values, written out for who tunes them."""
_BUFFERS = 5
"""Parameters that are on their way from or to the disk at once, the library's own number."""


def offload_sections(plan: Plan) -> dict[str, Any]:
    """Return the sections of `zero_optimization` for what the plan offloads."""
    offload, pinned = plan.offload, plan.accelerator == "cuda"
    sections: dict[str, Any] = {}
    for name, device in (("optimizer", offload.optimizer), ("param", offload.parameters)):
        if device != "none":
            sections[f"offload_{name}"] = {"device": device, "pin_memory": pinned}
            if device == "nvme":
                sections[f"offload_{name}"]["nvme_path"] = offload.path
    if offload.parameters == "nvme":
        # A buffer of the library's own size takes 200 MB a rank, whatever the model; and its first billion
        # parameters a rank would stay in memory.
        buffer = -(-_largest_parameter(plan.model) // plan.layout.dp)
        sections["offload_param"] |= {"buffer_count": _BUFFERS, "buffer_size": buffer, "max_in_cpu": 0}
    return sections


def _largest_parameter(model: Model) -> int:
    """Return a bound of the elements of the largest tensor that any trainer makes of the model."""
    wide = model.ffn_hidden * (2 if model.activation == "swiglu" else 1)
    heads = (model.heads + 2 * model.kv_heads) * model.head_dim
    return model.hidden * max(model.padded_vocab, model.max_positions, wide, heads)
