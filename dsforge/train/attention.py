"""Causal attention over one shard's heads, and over a part's rows of the sequence.

Where CP shares sequences out, keys and values of all parts are gathered, and their gradients are scattered
back as sums; queries, of which there are more where several share a key head, stay where they are (Llama team
2024, "The Llama 3 herd of models", section 3.3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import nn
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right
from torch.utils.checkpoint import checkpoint

from dsforge.train.dropout import Dropout
from dsforge.train.rows import Rows

Mix = Callable[..., torch.Tensor]
"""Of a stretch's query, and the key and value that it sees, [b, heads, s, head_dim]; with dropout, of ids."""


@dataclass(slots=True)
class Running:
    """What a layer runs on, for those whom megatron-core calls without a word of it: ids [b] of samples."""

    samples: torch.Tensor | None = None


@cache
def unseen(queries: int, keys: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Return where a query does not see a key: ahead of it, or `window` tokens behind or more.

    The queries are the last rows of those that the keys are of.
    """
    places = torch.arange(keys, device=device)
    behind = places[keys - queries :, None] - places
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
        rows: Rows,
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
        self.rows = rows
        self.parts = pg_collection.cp
        self.recompute = recompute

    def _fused(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        queries, keys = query.shape[2], key.shape[2]
        if self.window is not None and self.window < keys:
            # Kernels that take a mask know no groups.
            key, value = self._whole(key, value)
            seen = ~unseen(queries, keys, self.window, query.device)
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        grouped, whole = self.group_size > 1, queries == keys
        causal: dict[str, Any] = (
            {"is_causal": True} if whole else {"attn_mask": causal_lower_right(queries, keys)}
        )
        return functional.scaled_dot_product_attention(query, key, value, enable_gqa=grouped, **causal)

    def _whole(self, *parts: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield keys or values once for every query head of their group."""
        return (part.repeat_interleave(self.group_size, dim=1) for part in parts)

    def _dropped(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, samples: torch.Tensor
    ) -> torch.Tensor:
        key, value = self._whole(key, value)
        scores = (query @ key.transpose(2, 3)).float() / math.sqrt(query.shape[3])
        hidden = unseen(*scores.shape[2:], self.window, scores.device)
        chances = scores.masked_fill(hidden, -torch.inf).softmax(-1).to(value.dtype)
        return self.dropout.chances(chances, samples, self.first_head) @ value

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_mask: Any, **_options: Any
    ) -> torch.Tensor:
        """Return [s, b, heads x head_dim] of query, key, value [s, b, heads, head_dim]."""
        inputs = [query, key, value]
        mix = self._fused
        if self.dropout.rate and self.training:
            assert self.running.samples is not None
            mix = self._dropped
            # Handed over: when they are computed again, the layer runs on other samples.
            inputs.append(self.running.samples)
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._by_stretch, mix, *inputs, use_reentrant=False, preserve_rng_state=False)
        return self._by_stretch(mix, *inputs)

    def _by_stretch(
        self, mix: Mix, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *samples: torch.Tensor
    ) -> torch.Tensor:
        """Return what each stretch of a part's rows mixes out of the sequence up to its own last row."""
        if self.rows.parts > 1:
            both = gather_from_sequence_parallel_region(torch.cat((key, value), dim=-1), group=self.parts)
            key, value = self.rows.in_order(both).chunk(2, dim=-1)
        query, key, value = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        firsts = self.rows.firsts(query.shape[2])
        size = query.shape[2] // len(firsts)
        mixed = [
            mix(stretch, key[:, :, : first + size], value[:, :, : first + size], *samples)
            .permute(2, 0, 1, 3)
            .flatten(2)
            for first, stretch in zip(firsts, query.split(size, dim=2), strict=True)
        ]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)
