"""What the run asks of an engine, whichever library trains behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from dsforge.train.batches import Batches
from dsforge.train.held import Piece


@dataclass(frozen=True, slots=True)
class StepResult:
    """Of one optimizer step: mean loss over the global batch, gradient norm before clipping.

    `loss_scale`: what fp16 losses were multiplied by, None in other precisions. `skipped`: the gradients
    overflowed, under it or in bf16, so that the engine left the weights as they were.
    """

    loss: float
    grad_norm: float
    loss_scale: float | None = None
    skipped: bool = False


class Engine(Protocol):
    """A model and its optimizer that take whole steps; every rank must call each method."""

    parameters: Mapping[str, nn.Parameter]
    """This rank's parameters, or its shards of them, by the trainer's own names."""
    micro_losses: Sequence[torch.Tensor]
    """The last step's losses as this rank alone computed them, by micro-batch; none on other stages."""
    modules: Sequence[nn.Module]
    """This rank's part of the model: each is called once a micro-batch."""
    ties_bitwise: bool
    """The first and the last stage hold a tied weight bit by bit the same."""
    before_update: Callable[[], None]
    """Called once a step on every rank, when the gradients are there and the optimizer begins."""

    @property
    def optimizer_name(self) -> str:
        """The class that updates the weights."""

    def step(self, batches: Batches, learning_rate: float) -> StepResult:
        """Train on the next global batch at a learning rate."""

    def reduced_gradients(self) -> Mapping[str, Piece]:
        """Return what this rank updates each parameter by, summed over replicas; from `before_update` alone.

        Of a parameter that it does not update, an empty piece.
        """

    def evaluate(self, batches: Batches, count: int) -> float:
        """Return the mean token loss of `count` global batches; weights, gradients and counters stay."""

    def save_files(self, folder: Path) -> None:
        """Write this rank's part of a checkpoint; OSError or RuntimeError when it cannot be written."""

    def load_files(self, folder: Path) -> None:
        """Load this rank's part of a whole checkpoint, running no code in it.

        DsforgeError DSF334 names a file that cannot be loaded. The optimizer's options stay the plan's.
        """
