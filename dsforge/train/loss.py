"""The loss over a vocabulary that may be cut over the tensor-parallel group."""

from __future__ import annotations

from collections.abc import Callable

import torch
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from torch.nn import functional

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def token_loss(vocab: int, padded_vocab: int, shards: int, index: int) -> Loss:
    """Return loss(logits [s, b, padded_vocab / shards], labels [b, s]): the mean over all tokens, in fp32.

    Columns of the vocabulary's padding are left out of the softmax, so that a result never depends
    on how much padding a degree of TP asks for.
    """
    part = padded_vocab // shards
    real_columns = min(max(vocab - index * part, 0), part)

    def whole(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        # PyTorch's own kernel passes over the logits fewer times than the vocabulary-parallel one.
        rows = logits[..., :vocab].flatten(0, 1)
        return functional.cross_entropy(rows.float(), labels.transpose(0, 1).flatten())

    def cut(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if real_columns < part:
            padding = torch.arange(part, device=logits.device) >= real_columns
            logits = logits.masked_fill(padding, -torch.inf)
        return vocab_parallel_cross_entropy(logits, labels.transpose(0, 1).contiguous()).mean()

    return whole if shards == 1 else cut
