"""All that megatron-core and deepspeed need on a machine without an accelerator, in one place.

It is little: attention, dropout and recomputation are our own and use no generator, so that the CUDA mask
and random-state tracker of megatron-core are never reached; weights are made on the CPU for every device.
"""

from __future__ import annotations

import importlib
import os
import socket

import torch

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode


def choose_device(accelerator: str, local_rank: int) -> torch.device:
    """Return this rank's device; DsforgeError if the plan wants a GPU that is not there.

    On a CPU it tells deepspeed so before that is imported and guesses.
    """
    if accelerator == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
        return torch.device("cpu")
    present = torch.cuda.device_count()
    if local_rank >= present:
        raise DsforgeError(
            "DSF312",
            f"the plan is for GPUs; this host shows {present}, local rank {local_rank} has none",
            Place(host=socket.gethostname(), rank=int(os.environ["RANK"])),
            "check the driver and CUDA_VISIBLE_DEVICES, or plan for `gpu: cpu`",
            ExitCode.BEFORE_FIRST_STEP,
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def import_uncompiled(device: torch.device, module: str) -> None:
    """Import a module, on a CPU without the compiler that it wraps its functions in.

    No function so wrapped runs on a CPU, and to load the compiler costs every rank 1.6 CPU-seconds and its
    memory.
    """
    compiler = torch.compile
    if device.type == "cpu":
        torch.compile = lambda function: function
    try:
        importlib.import_module(module)
    finally:
        torch.compile = compiler


def skip_shared_memory_build(device: torch.device) -> None:
    """Keep deepspeed from compiling its shared-memory reduction, which only its inference engine uses."""
    if device.type != "cpu":
        return
    # Not `import ... as`: the package's own attribute `torch` is PyTorch.
    backend = importlib.import_module("deepspeed.comm.torch")
    backend.build_shm_op = lambda: None
