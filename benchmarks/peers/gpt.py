"""A GPT in plain PyTorch: learned positions, pre-norm, biases, tanh GELU, tied head."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Causal self-attention by PyTorch's own kernel."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, hidden = x.shape
        q, k, v = (
            part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(hidden, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, hidden))


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, hidden: int, heads: int, ffn_hidden: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, ffn_hidden), nn.GELU(approximate="tanh"), nn.Linear(ffn_hidden, hidden)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    """The whole model; `forward` gives the mean loss of tokens and labels [batch, seq]."""

    def __init__(self, model: dict[str, int], seq_len: int) -> None:
        super().__init__()
        hidden = model["hidden"]
        self.words = nn.Embedding(model["vocab"], hidden)
        self.positions = nn.Embedding(seq_len, hidden)
        self.blocks = nn.ModuleList(
            Block(hidden, model["heads"], model["ffn_hidden"]) for _ in range(model["layers"])
        )
        self.norm = nn.LayerNorm(hidden)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.words.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Return matrices, which decay, and the rest, which does not."""
    weights = list(model.parameters())
    return [
        {"params": [w for w in weights if w.dim() > 1], "weight_decay": weight_decay},
        {"params": [w for w in weights if w.dim() <= 1], "weight_decay": 0.0},
    ]
