"""Lets a Hugging Face model compute activations again in the backward pass, by the words of a recipe.

transformers recomputes one layer at a time and nothing less: attention alone and blocks of layers are ours.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dsforge.plan.types import Train
from dsforge.train.recompute import block_size

ATTENTION = "sdpa"
"""The attention of every model: PyTorch's own kernels."""
_AGAIN = "dsforge_sdpa_again"


def attention_name(train: Train) -> str:
    """Return the attention that a model is made with, as transformers knows it."""
    if train.recompute != "selective":
        return ATTENTION
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    AttentionInterface.register(_AGAIN, _attention_again)
    AttentionMaskInterface.register(_AGAIN, ALL_MASK_ATTENTION_FUNCTIONS[ATTENTION])
    return _AGAIN


def _attention_again(module: nn.Module, *inputs: torch.Tensor | None, **options: Any) -> tuple[Any, None]:
    """Return what transformers' own attention does of query, key, value and mask, keeping these alone."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    attend = partial(sdpa_attention_forward, module, **options)
    if torch.is_grad_enabled():
        attend = partial(checkpoint, attend, use_reentrant=False, preserve_rng_state=False)
    return attend(*inputs)[0], None


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a Hugging Face model, in order."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def recompute_blocks(model: nn.Module, train: Train) -> None:
    """Let a model keep of each block of layers the input alone, where the plan says so.

    A block ends where the next layer attends in another way: it is called with another mask.
    """
    layers, size = blocks(model), block_size(train)
    kinds = getattr(model.config, "layer_types", None) or [""] * len(layers)
    for _, some in groupby(zip(layers, kinds, strict=True), lambda pair: pair[1]):
        row = [layer for layer, _ in some]
        for start in range(0, len(row) if size else 0, size or 1):
            _join(row[start : start + size])


def _join(layers: list[nn.Module]) -> None:
    block = _Block(tuple(layers))
    for layer in layers:
        kind = type(layer)
        # A call is looked up in the class; hooks that gather weights run inside of it, so again, too.
        layer.__class__ = type(kind.__name__, (_OfBlock, kind), {"block": block})


@dataclass(slots=True)
class _Block:
    """Layers in a row, of which the first computes what all of them make."""

    layers: tuple[nn.Module, ...]
    given: list[Any] = field(default_factory=list)
    """What the first layer was called with besides hidden states."""

    def call(self, layer: nn.Module, hidden: torch.Tensor, others: tuple[Any, ...], named: Any) -> Any:
        """Return the block's output for its first layer, and what the others are handed, which is that."""
        given = [*others, *named, *named.values()]
        if layer is not self.layers[0]:
            same = len(given) == len(self.given) and all(map(operator.is_, given, self.given))
            assert same, "a layer of a block is called with something else than its first"
            return hidden
        self.given = given
        run = partial(self._run, others, named)
        return checkpoint(run, hidden, use_reentrant=False, preserve_rng_state=False)

    def _run(self, others: tuple[Any, ...], named: Any, hidden: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden = nn.Module.__call__(layer, hidden, *others, **named)
        return hidden


class _OfBlock(nn.Module):
    """A layer that belongs to a block while it trains."""

    block: _Block

    def __call__(self, hidden: torch.Tensor, *others: Any, **named: Any) -> Any:
        """Return hidden states after the block's layers, however many of them have come."""
        if self.training and torch.is_grad_enabled():
            return self.block.call(self, hidden, others, named)
        return super().__call__(hidden, *others, **named)
