"""Under which stage of ZeRO DeepSpeed moves states off the device.

Source: deepspeed 0.19.8. `runtime/zero/stage_1_and_2.py` keeps an optimizer on the host and takes `nvme` for
the same; `runtime/zero/stage3.py` knows the disk, and parameters besides.
"""

from __future__ import annotations


def least_stage(optimizer: str, parameters: str) -> int:
    """Return the lowest ZeRO stage that offloads to these places; 0 where nothing leaves the device."""
    if parameters != "none" or optimizer == "nvme":
        return 3
    return 0 if optimizer == "none" else 1
