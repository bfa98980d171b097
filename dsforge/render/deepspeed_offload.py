"""Where DeepSpeed keeps states besides the device: the offload sections of its configuration."""

from __future__ import annotations

from typing import Any

from dsforge.layout.largest import largest_parameter
from dsforge.layout.offload import DISK_BUFFERS, DISK_GROUP, DISK_STATES
from dsforge.plan.types import Model, Plan

AIO = {
    "block_size": 1_048_576,
    "queue_depth": 8,
    "intra_op_parallelism": 1,
    "single_submit": False,
    "overlap_events": True,
}
"""How the disk is read and written: the library's own values, written out for who tunes them."""


def offload_sections(plan: Plan) -> dict[str, Any]:
    """Return the keys of `zero_optimization` for what the plan offloads."""
    offload, pinned = plan.offload, plan.accelerator == "cuda"
    sections: dict[str, Any] = {}
    for name, device in (("optimizer", offload.optimizer), ("param", offload.parameters)):
        if device != "none":
            sections[f"offload_{name}"] = {"device": device, "pin_memory": pinned}
            if device == "nvme":
                sections[f"offload_{name}"]["nvme_path"] = offload.path
    if offload.path is not None:
        # The host has buffers for a group: of the library's own size it would hold all states of most ranks.
        sections["sub_group_size"] = DISK_GROUP
    if offload.optimizer == "nvme":
        sections["offload_optimizer"]["buffer_count"] = DISK_STATES
    if offload.parameters == "nvme":
        sections["offload_param"] |= {
            "buffer_count": DISK_BUFFERS,
            "buffer_size": -(-_largest(plan.model, plan.layout.tp) // plan.layout.dp),
            "max_in_cpu": 0,
        }
        # A parameter has a buffer from when it is read until it is given up. One that is read ahead, or
        # kept for its next use, would need one of its own, and be stale where an update comes first.
        sections |= {"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0}
    return sections


def _largest(model: Model, tp: int) -> int:
    gates = 2 if model.gated else 1
    attention = (model.heads + 2 * model.kv_heads) * model.head_dim
    experts = model.experts.count * gates * model.experts.ffn_hidden if model.experts is not None else 0
    positions = model.max_positions if model.position == "learned" else 0
    cut = (model.padded_vocab, attention, gates * model.ffn_hidden)
    return largest_parameter(model.hidden, cut=cut, whole=(positions, experts), tp=tp)
