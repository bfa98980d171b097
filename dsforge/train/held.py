"""A parameter cut over replicas: what this rank holds of it, how it is filled, how it is whole again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


@dataclass(frozen=True, slots=True)
class Piece:
    """What a rank holds of a tensor of `size` elements: `values`, flat, from the element `start` on."""

    start: int
    size: int
    values: torch.Tensor

    @classmethod
    def whole(cls, tensor: torch.Tensor) -> Piece:
        """Return all of a tensor."""
        return cls(0, tensor.numel(), tensor.detach().reshape(-1))

    @classmethod
    def nothing(cls, tensor: torch.Tensor) -> Piece:
        """Return what a rank holds that holds no element of a tensor."""
        return cls(0, tensor.numel(), tensor.detach().reshape(-1)[:0])


def held(parameter: torch.Tensor) -> torch.Tensor:
    """Return this rank's piece of a parameter, or all of one that is not cut; a copy of one on the disk."""
    if isinstance(parameter, DTensor):
        return parameter.to_local()
    # Under ZeRO-3 a parameter is empty and its shard stands beside it.
    piece: torch.Tensor = getattr(parameter, "ds_tensor", parameter)
    return piece if piece.numel() == getattr(piece, "ds_numel", piece.numel()) else _read(parameter)


def _read(parameter: Any) -> torch.Tensor:
    """Return the shard of a parameter that DeepSpeed keeps on the disk; a stand-in of one element is here."""
    shard = torch.empty(parameter.ds_tensor.ds_numel, dtype=parameter.dtype)
    parameter.nvme_swapper.swap_into_buffer(parameter, shard)
    return shard


def piece_of(tensor: torch.Tensor) -> Piece:
    """Return this rank's piece of a parameter or gradient, and where in the whole it lies."""
    if isinstance(tensor, DTensor):
        _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        local = tensor.to_local().detach().reshape(-1)
        # Rows are dealt out; a rank behind the last of them holds none.
        start = offset[0] * math.prod(tensor.shape[1:]) if offset and local.numel() else 0
        return Piece(start, tensor.numel(), local)
    if hasattr(tensor, "ds_tensor"):
        return dealt_out(tensor, held(tensor))
    return Piece.whole(tensor)


def dealt_out(parameter: torch.Tensor, shard: torch.Tensor) -> Piece:
    """Return a shard of a parameter under ZeRO-3, or of its gradient, without the padding behind the last."""
    size, length = int(parameter.ds_numel), shard.numel()  # type: ignore[attr-defined]  # set by DeepSpeed
    start = min(size, dist.get_rank(parameter.ds_process_group) * length)  # type: ignore[attr-defined]  # same
    values = shard.detach().reshape(-1)[: size - start]
    return Piece(start if values.numel() else 0, size, values)


@torch.no_grad()
def fill(parameter: nn.Parameter, whole: torch.Tensor) -> None:
    """Write a rank's piece of a whole tensor, which every rank has, into its parameter."""
    piece = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    piece.copy_(cut(parameter, whole))


def cut(parameter: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Return this rank's piece of a whole tensor, which every rank has, cut as FSDP has cut a parameter."""
    if not isinstance(parameter, DTensor):
        return whole
    # Without a source rank each cuts its own copy, and nothing is sent.
    dealt = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return dealt.to_local()


@torch.no_grad()
def gather(parameter: nn.Parameter) -> torch.Tensor:
    """Return a whole parameter that FSDP has cut; every rank must call it."""
    if not isinstance(parameter, DTensor):
        return parameter.detach()
    # An offloaded shard is sent from the device, whose group it is.
    return parameter.detach().to(parameter.device_mesh.device_type).full_tensor()
