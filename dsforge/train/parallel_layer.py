"""A layer whose attention and MLP stand side by side (Black et al. 2022, section 2.1)."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer.transformer_layer import TransformerLayer


class ParallelLayer(TransformerLayer):
    """megatron-core's layer, but that the MLP does not wait for the attention."""

    def forward(self, hidden_states: torch.Tensor, **attention: Any) -> tuple[torch.Tensor, None]:
        """Return hidden states [s, b, h] plus what attention and MLP make of them, and no context."""
        mixed = self.self_attention(self.input_layernorm(hidden_states), **attention)
        widened = self.mlp(self.pre_mlp_layernorm(hidden_states))
        add_attention, add_mlp = (
            add(self.training, self.config.bias_dropout_fusion) for add in (self.self_attn_bda, self.mlp_bda)
        )
        hidden_states = add_attention(mixed, hidden_states, self.hidden_dropout)
        return add_mlp(widened, hidden_states, self.hidden_dropout), None
