"""The `ddp` trainer: a Hugging Face model under `DistributedDataParallel`, whole on every rank.

The order of samples is that of every trainer (ADR 8), which does what a DistributedSampler does: replicas
take disjoint samples, together each epoch whole, in another order in each.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dsforge.train import quiet, replicas, world
from dsforge.train.balance import balance_of
from dsforge.train.context import RankContext
from dsforge.train.hf_recompute import recompute_blocks
from dsforge.train.hugging_face import WithLoss, bare_model, global_tensors, set_weights
from dsforge.train.precision import DTYPES
from dsforge.train.torch_engine import TorchEngine

__all__ = ["build", "global_tensors", "import_libraries", "make_groups"]

import_libraries, make_groups = replicas.import_libraries, replicas.make_groups


class Autocast(nn.Module):
    """A module that computes in a lower precision than that of its weights."""

    def __init__(self, module: nn.Module, device: torch.device, precision: torch.dtype) -> None:
        super().__init__()
        self.module = module
        self._options = (device.type, precision)

    def forward(self, inputs: tuple[torch.Tensor, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
        """Return the module's loss."""
        with torch.autocast(*self._options):
            loss: torch.Tensor = self.module(inputs, labels)
        return loss


def build(
    context: RankContext,
    groups: world.Groups,  # noqa: ARG001 - every trainer's signature
    device: torch.device,
    *,
    restored: bool,
) -> TorchEngine:
    """Return the engine with the whole model; DsforgeError when first weights cannot be used."""
    plan = context.plan
    with quiet.no_chatter():
        model = bare_model(plan, torch.float32, device)
    if not restored:
        set_weights(model, context)
    recompute_blocks(model, plan.train)
    module: nn.Module = WithLoss(model, balance_of(plan))
    if plan.train.precision != "fp32":
        module = Autocast(module, device, DTYPES[plan.train.precision])
    wrapped = DistributedDataParallel(
        module,
        device_ids=[device] if device.type == "cuda" else None,
        forward_sync_buffers=False,
        # The weights are the same already: drawn from the seed, or read from one file.
        init_sync=False,
        gradient_as_bucket_view=True,
    )

    def accumulating(is_last: bool) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if is_last else wrapped.no_sync()

    return TorchEngine(
        wrapped, dict(model.named_parameters()), plan, device, accumulating=accumulating, is_cut=False
    )
