"""Causal attention over one shard's heads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from dsforge.train.dropout import Dropout


@dataclass(slots=True)
class Running:
    """What a layer runs on, for those whom megatron-core calls without a word of it.

    The ids [b] of the samples, and the first row of the sequence on this shard.
    """

    samples: torch.Tensor | None = None
    first_row: int = 0


@cache
def unseen(length: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Return where a query [s] does not see a key [s]: ahead of it, or `window` tokens behind or more."""
    places = torch.arange(length, device=device)
    behind = places[:, None] - places
    ahead = behind < 0
    return ahead if window is None else ahead | (behind >= window)


class CausalAttention(nn.Module):
    """Attention by PyTorch's own kernels, FlashAttention where it has one; step by step with dropout.

    No kernel takes a mask for the probabilities, and its own would differ from layout to layout.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        window: int | None,
        dropout: Dropout,
        running: Running,
        recompute: bool,
        pg_collection: Any,
        **_placement: Any,
    ) -> None:
        super().__init__()
        self.group_size = config.num_attention_heads // config.num_query_groups
        self.first_head = pg_collection.tp.rank() * (config.num_attention_heads // pg_collection.tp.size())
        self.window = window
        self.dropout = dropout
        self.running = running
        self.recompute = recompute

    def _fused(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if self.window is not None and self.window < query.shape[2]:
            # Kernels that take a mask know no groups.
            key, value = self._whole(key, value)
            seen = ~unseen(query.shape[2], self.window, query.device)
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        grouped = self.group_size > 1
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)

    def _whole(self, *parts: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield keys or values once for every query head of their group."""
        return (part.repeat_interleave(self.group_size, dim=1) for part in parts)

    def _dropped(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, samples: torch.Tensor
    ) -> torch.Tensor:
        key, value = self._whole(key, value)
        scores = (query @ key.transpose(2, 3)).float() / math.sqrt(query.shape[3])
        hidden = unseen(scores.shape[2], self.window, scores.device)
        chances = scores.masked_fill(hidden, -torch.inf).softmax(-1).to(value.dtype)
        return self.dropout.chances(chances, samples, self.first_head) @ value

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_mask: Any, **_options: Any
    ) -> torch.Tensor:
        """Return [s, b, heads x head_dim] of query, key, value [s, b, heads, head_dim]."""
        inputs = [tensor.permute(1, 2, 0, 3) for tensor in (query, key, value)]
        mix = self._fused
        if self.dropout.rate and self.training:
            assert self.running.samples is not None
            mix = self._dropped
            # Handed over: when they are computed again, the layer runs on other samples.
            inputs.append(self.running.samples)
        if self.recompute and torch.is_grad_enabled():
            mixed = checkpoint(mix, *inputs, use_reentrant=False, preserve_rng_state=False)
        else:
            mixed = mix(*inputs)
        return mixed.permute(2, 0, 1, 3).flatten(2)
