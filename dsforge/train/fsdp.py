"""The `fsdp` trainer: a Hugging Face model whose blocks `fully_shard` cuts over the replicas.

What ZeRO's stages mean here. 1: gradients stay whole until the last micro-batch and are then dealt out.
2: they are dealt out after each. 3: a block's weights leave again after its forward, too; below, they stay
until their backward.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from dsforge.plan.types import Plan
from dsforge.train import quiet, replicas, world
from dsforge.train.balance import balance_of
from dsforge.train.context import RankContext
from dsforge.train.hf_recompute import blocks, recompute_blocks
from dsforge.train.hugging_face import WithLoss, bare_model, global_tensors, set_weights
from dsforge.train.precision import DTYPES
from dsforge.train.torch_engine import TorchEngine

__all__ = ["build", "global_tensors", "import_libraries", "make_groups"]

import_libraries, make_groups = replicas.import_libraries, replicas.make_groups


def build(
    context: RankContext,
    groups: world.Groups,  # noqa: ARG001 - every trainer's signature
    device: torch.device,
    *,
    restored: bool,
) -> TorchEngine:
    """Return the engine with this rank's shards; DsforgeError when first weights cannot be used."""
    plan = context.plan
    # Made on the host, where memory that nobody writes to costs nothing; then cut block by block.
    with quiet.no_chatter():
        model = bare_model(plan, torch.float32, torch.device("cpu"))
    recompute_blocks(model, plan.train)
    module = WithLoss(model, balance_of(plan))
    shard(module, model, plan, device)
    if not restored:
        set_weights(model, context)
    return TorchEngine(
        module,
        dict(model.named_parameters()),
        plan,
        device,
        accumulating=lambda is_last: _accumulating(module, plan.layout.zero, is_last=is_last),
        is_cut=True,
    )


def shard(module: nn.Module, model: nn.Module, plan: Plan, device: torch.device) -> None:
    """Cut the blocks of a model and then what is left of the module around it."""
    low = DTYPES[plan.train.precision]
    offload = OffloadPolicy()
    if plan.offload.parameters == "cpu":
        offload = CPUOffloadPolicy(pin_memory=device.type == "cuda")
    options: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (plan.layout.dp,)),
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=None if low is torch.float32 else low, reduce_dtype=torch.float32
        ),
        "offload_policy": offload,
    }
    for block in blocks(model):
        fully_shard(block, reshard_after_forward=plan.layout.zero == 3, **options)
    fully_shard(module, **options)


def _accumulating(module: nn.Module, zero: int, *, is_last: bool) -> contextlib.AbstractContextManager[None]:
    assert isinstance(module, FSDPModule)
    module.set_requires_gradient_sync(is_last or zero >= 2)
    # Whole weights that the next micro-batch takes again need not leave.
    module.set_reshard_after_backward(is_last or zero == 3)
    return contextlib.nullcontext()
