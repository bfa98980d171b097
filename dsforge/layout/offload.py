"""Under which stage of ZeRO DeepSpeed moves states off the device.

Source: deepspeed 0.19.8. `runtime/zero/stage_1_and_2.py` keeps an optimizer on the host and takes `nvme` for
the same; `runtime/zero/stage3.py` knows the disk, and parameters besides.
"""

from __future__ import annotations

DISK_GROUP = 100_000_000
"""Parameters of a rank that are updated at once where they, or their states, lie on a disk."""
DISK_STATES = 4
"""Buffers of a group's size for what is updated: weights, gradients and two moments."""
DISK_BUFFERS = 5
"""Parameters of a rank that may be in memory at once: a module's own, those of the one before, and a tied
table that is held meanwhile."""


def least_stage(optimizer: str, parameters: str) -> int:
    """Return the lowest ZeRO stage that offloads to these places; 0 where nothing leaves the device."""
    if parameters != "none" or optimizer == "nvme":
        return 3
    return 0 if optimizer == "none" else 1
