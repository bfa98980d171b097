"""Writes a rank's parameters at the end of a run, so that whole runs can be compared by weight."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from dsforge.plan.types import Layout
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
    layout: Layout,
    folder: Path,
) -> None:
    """Write one file a shard and stage, by replica 0's part 0, and by others whose experts that one lacks.

    Tensors stand under their global names; metadata `dsforge` holds the shard's number and every cut.
    """
    copy = where.replica * layout.cp + where.part
    first = copy == 0
    # Ranks of a stage deal out its experts in turn, whatever their shard, part and replica.
    has_first = copy * layout.tp + where.shard < layout.ep if layout.ep > 1 else first
    tensors = {
        name: whole for name, whole in tensors.items() if (has_first if specs[name].of_expert else first)
    }
    if not tensors:
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
    place = f"stage-{where.stage:03d}-shard-{where.shard:03d}-replica-{copy:03d}"
    save_file(dict(tensors), folder / f"{place}.safetensors", metadata={"dsforge": about})


def _whole_shard(parameter: nn.Parameter) -> torch.Tensor:
    gathered: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if hasattr(parameter, "ds_id"):
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters([parameter])
    with gathered:
        return gather(parameter).to("cpu", copy=True).contiguous()
