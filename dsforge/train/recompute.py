"""Runs the pieces of a rank, computing blocks of layers again in the backward pass where the plan says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from dsforge.plan.types import Train
from dsforge.train.layers import Layer

Piece = Callable[[Any], Any]


def block_size(train: Train) -> int:
    """Return how many layers one recomputed block holds; 0: no layer is recomputed as a whole."""
    return train.recompute_every if train.recompute == "full" else 0


def run(pieces: Iterable[Piece], value: Any, block: int) -> Any:
    """Return what pieces make of a value, one after another.

    Of each `block` layers in a row only the input is kept (Chen et al. 2016, "Training deep nets with
    sublinear memory cost"); the last block of a stage may hold fewer. 0 keeps everything.
    """
    for are_layers, some in groupby(pieces, lambda piece: isinstance(piece, Layer)):
        row = list(some)
        if not (are_layers and block and torch.is_grad_enabled()):
            value = _through(row, value)
            continue
        for start in range(0, len(row), block):
            # The reentrant kind loses the gradient of a first input that needs none.
            value = checkpoint(
                _layers, row[start : start + block], *value, use_reentrant=False, preserve_rng_state=False
            )
    return value


def _through(pieces: Sequence[Piece], value: Any) -> Any:
    for piece in pieces:
        value = piece(value)
    return value


def _layers(pieces: Sequence[Piece], *flow: torch.Tensor) -> Any:
    return _through(pieces, flow)
