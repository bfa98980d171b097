"""Writes a rank's parameters at the end of a run, so that whole runs can be compared by weight."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from dsforge.train.held import gather
from dsforge.train.parameters import ParameterSpec
from dsforge.train.world import Coordinates


def whole_shards(parameters: Mapping[str, nn.Parameter]) -> dict[str, torch.Tensor]:
    """Return a rank's parameters on the CPU; where replicas share them every rank must call it."""
    return {name: _whole_shard(parameter) for name, parameter in parameters.items()}


def dump(
    tensors: Mapping[str, torch.Tensor],
    specs: Mapping[str, ParameterSpec],
    where: Coordinates,
    folder: Path,
) -> None:
    """Write one file a shard and stage, by replica 0.

    Tensors stand under their global names; metadata `dsforge` holds the shard's number and every cut.
    """
    if where.replica != 0:
        return
    cuts = {
        name: {
            # What others cut a trainer may keep whole, as the table of words.
            "partition_dim": None if tensor.shape == specs[name].shape else specs[name].partition_dim,
            "partition_stride": specs[name].partition_stride,
            "shape": specs[name].shape,
        }
        for name, tensor in tensors.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"stage": where.stage, "shard": where.shard, "parameters": cuts}, sort_keys=True)
    path = folder / f"stage-{where.stage:03d}-shard-{where.shard:03d}.safetensors"
    save_file(dict(tensors), path, metadata={"dsforge": about})


def _whole_shard(parameter: nn.Parameter) -> torch.Tensor:
    gathered: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if hasattr(parameter, "ds_id"):
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters([parameter])
    with gathered:
        return gather(parameter).to("cpu", copy=True).contiguous()
