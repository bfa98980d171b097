"""The norms of a model's layers, those of heads among them."""

from __future__ import annotations

import torch
from megatron.core.tensor_parallel.mappings import copy_to_tensor_model_parallel_region
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import nn
from torch.distributed import ProcessGroup
from torch.nn import functional


class OffsetRMSNorm(nn.RMSNorm):
    """RMSNorm that multiplies by one plus its weight, in fp32 as Gemma's does (Gemma team 2024)."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the normed value in its own type."""
        scale = 1.0 + self.weight.float()
        return functional.rms_norm(value.float(), self.normalized_shape, scale, self.eps).type_as(value)


class HeadNorm(nn.RMSNorm):
    """RMSNorm over the width of a head; every shard of `group` norms heads of its own by the same weight."""

    def __init__(
        self,
        config: TransformerConfig,  # noqa: ARG002 - megatron-core's signature
        hidden_size: int,
        eps: float,
        *,
        group: ProcessGroup,
    ) -> None:
        super().__init__(hidden_size, eps=eps)
        self.group = group

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the normed heads; the weight's gradient is the sum over the shards."""
        weight = copy_to_tensor_model_parallel_region(self.weight, self.group)
        return functional.rms_norm(value, self.normalized_shape, weight, self.eps)


class Norm:
    """Makes a model's norm; with sequence parallelism its shards' gradients are to be added up.

    megatron-core's own wrapper refuses sequence parallelism.
    """

    def __new__(
        cls, config: TransformerConfig, hidden_size: int, eps: float, *, unit_offset: bool
    ) -> nn.Module:
        """Return LayerNorm or RMSNorm, `unit_offset`: its weights counted from 1."""
        plain = nn.RMSNorm if config.normalization == "RMSNorm" else nn.LayerNorm
        norm = (OffsetRMSNorm if unit_offset else plain)(hidden_size, eps=eps)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm
