"""Cuts a full tensor into tensor-parallel shards and joins shards again. Needs torch only.

A partitioned dimension of stride k is k equal blocks laid end to end, each cut on its own: the
fused SwiGLU weight [gate; up] has stride 2, so that every shard holds its part of both.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def shard_rows(size: int, shards: int, index: int, stride: int) -> list[tuple[int, int]]:
    """Return the [start, stop) ranges of one shard along a dimension of `size` entries."""
    assert size % (shards * stride) == 0, f"{size} is not a multiple of {shards} x {stride}"
    block = size // stride
    part = block // shards
    return [(k * block + index * part, k * block + (index + 1) * part) for k in range(stride)]


def cut(full: torch.Tensor, dim: int | None, stride: int, shards: int, index: int) -> torch.Tensor:
    """Return shard `index` of `shards` of a full tensor; `dim` None means replicated."""
    if dim is None or shards == 1:
        return full
    pieces = [
        full.narrow(dim, start, stop - start)
        for start, stop in shard_rows(full.shape[dim], shards, index, stride)
    ]
    return pieces[0] if stride == 1 else torch.cat(pieces, dim)


def join(shards: Sequence[torch.Tensor], dim: int | None, stride: int) -> torch.Tensor:
    """Return the full tensor of its shards in order, the inverse of `cut`."""
    if dim is None or len(shards) == 1:
        return shards[0]
    pieces = [shard.chunk(stride, dim) for shard in shards]
    return torch.cat([piece[k] for k in range(stride) for piece in pieces], dim)


def pad_rows(full: torch.Tensor, rows: int) -> torch.Tensor:
    """Return a tensor with zero rows appended up to `rows`: the padding of a vocabulary."""
    missing = rows - full.shape[0]
    assert missing >= 0, f"{full.shape[0]} rows do not fit in {rows}"
    return torch.cat([full, full.new_zeros(missing, *full.shape[1:])]) if missing else full
