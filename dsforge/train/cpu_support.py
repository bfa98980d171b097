"""All that megatron-core and deepspeed need on a machine without an accelerator, in one place.

megatron-core's attention and layers ask for the current CUDA device and fork CUDA random states; with
dropout zero no random number is drawn in a layer, so the tracker may do nothing.
"""

from __future__ import annotations

import os

import torch


def choose_accelerator(accelerator: str) -> torch.device:
    """Return the device kind of a plan and tell deepspeed before it is imported and guesses."""
    if accelerator == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def skip_shared_memory_build(device: torch.device) -> None:
    """Keep deepspeed from compiling its shared-memory reduction, which only its inference engine uses."""
    if device.type != "cpu":
        return
    import deepspeed.comm.torch as backend

    backend.build_shm_op = lambda: None
