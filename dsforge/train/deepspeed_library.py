"""DeepSpeed for the trainers on it: imported before the ranks meet, told of the group when they have."""

from __future__ import annotations

import importlib

import torch

from dsforge.train import cpu_support


def load(device: torch.device) -> None:
    """Import DeepSpeed, which looks for accelerators while it does."""
    importlib.import_module("deepspeed")
    # Every engine imports it to compare its optimizer with, which on a CPU would take longer than DeepSpeed.
    cpu_support.import_uncompiled(device, "deepspeed.runtime.zero.muon.muon_optimizer")
    cpu_support.skip_shared_memory_build(device)


def join() -> None:
    """Give DeepSpeed the process group that stands."""
    import deepspeed

    deepspeed.init_distributed(dist_backend=torch.distributed.get_backend(), verbose=False)
