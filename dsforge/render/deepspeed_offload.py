"""Where DeepSpeed keeps states besides the device: the offload sections of its configuration."""

from __future__ import annotations

from typing import Any

from dsforge.plan.types import Plan

AIO = {
    "block_size": 1_048_576,
    "queue_depth": 8,
    "intra_op_parallelism": 1,
    "single_submit": False,
    "overlap_events": True,
}
"""How the disk is read and written: the library's own values, written out for who tunes them."""


def offload_sections(plan: Plan) -> dict[str, Any]:
    """Return the sections of `zero_optimization` for what the plan offloads."""
    offload, pinned = plan.offload, plan.accelerator == "cuda"
    sections: dict[str, Any] = {}
    for name, device in (("optimizer", offload.optimizer), ("param", offload.parameters)):
        if device != "none":
            sections[f"offload_{name}"] = {"device": device, "pin_memory": pinned}
            if device == "nvme":
                sections[f"offload_{name}"]["nvme_path"] = offload.path
    return sections
