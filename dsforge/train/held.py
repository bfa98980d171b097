"""A parameter cut over replicas: what this rank holds of it, how it is filled, how it is whole again."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor


def held(parameter: torch.Tensor) -> torch.Tensor:
    """Return this rank's piece of a parameter, or all of one that is not cut."""
    if isinstance(parameter, DTensor):
        return parameter.to_local()
    # Under ZeRO-3 a parameter is empty and its shard stands beside it.
    piece: torch.Tensor = getattr(parameter, "ds_tensor", parameter)
    return piece


@torch.no_grad()
def fill(parameter: nn.Parameter, whole: torch.Tensor) -> None:
    """Write a rank's piece of a whole tensor, which every rank has, into its parameter."""
    if not isinstance(parameter, DTensor):
        parameter.copy_(whole)
        return
    # Without a source rank each cuts its own copy, and nothing is sent.
    cut = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
    parameter.to_local().copy_(cut.to_local())


@torch.no_grad()
def gather(parameter: nn.Parameter) -> torch.Tensor:
    """Return a whole parameter that FSDP has cut; every rank must call it."""
    if not isinstance(parameter, DTensor):
        return parameter.detach()
    # An offloaded shard is sent from the device, whose group it is.
    return parameter.detach().to(parameter.device_mesh.device_type).full_tensor()
