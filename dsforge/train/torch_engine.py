"""PyTorch's own replicas behind one step: what `fsdp` and `ddp` share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dsforge.plan.types import Plan
from dsforge.train import optimizers, rank_files
from dsforge.train.batches import Batches
from dsforge.train.engine import parameter_groups
from dsforge.train.engine_protocol import StepResult
from dsforge.train.held import Piece, held, piece_of
from dsforge.train.loss_scale import LossScale


class TorchEngine:
    """A wrapped module, fp32 weights and an optimizer; every rank must call each method.

    `accumulating(is_last)` surrounds a micro-batch and says whether gradients are summed over replicas
    after it; `is_cut`: replicas share the states out, so that norms are sums over them and each rank saves
    its own.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        plan: Plan,
        device: torch.device,
        *,
        accumulating: Callable[[bool], AbstractContextManager[Any]],
        is_cut: bool,
    ) -> None:
        self.plan = plan
        self.parameters = parameters
        self.micro_losses: Sequence[torch.Tensor] = ()
        self.modules = (module,)
        self.ties_bitwise = True
        self.before_update: Callable[[], None] = lambda: None
        self._module = module
        self._device = device
        self._accumulating = accumulating
        self._is_cut = is_cut
        self._scale = LossScale() if plan.train.precision == "fp16" else None
        self._optimizer = optimizers.make(
            parameter_groups(parameters, plan.optimizer.weight_decay), plan.optimizer
        )

    @property
    def optimizer_name(self) -> str:
        """The class that updates the weights."""
        name = f"{type(self._optimizer).__module__}.{type(self._optimizer).__name__}"
        return f"{name} (fused)" if self._optimizer.defaults.get("fused") else name

    def step(self, batches: Batches, learning_rate: float) -> StepResult:
        """Train on the next global batch at a learning rate."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        count = self.plan.batch.accumulation_steps
        scale = self._scale.value if self._scale else 1.0
        losses: list[torch.Tensor] = []
        for micro in range(count):
            inputs, labels = next(batches)
            with self._accumulating(micro == count - 1):
                loss = self._module(inputs, labels)
                losses.append(loss.detach())
                (loss * (scale / count)).backward()
        self.before_update()
        gradients = [held(p.grad) for p in self.parameters.values() if p.grad is not None]
        scaled_norm = self._norm(gradients)
        skipped = self._scale is not None and not self._scale.follow(scaled_norm)
        norm = scaled_norm / scale
        if not skipped:
            self._clip(gradients, norm, scale)
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.micro_losses = losses
        total = torch.stack(losses).mean()
        loss_scale = scale if self._scale else None
        return StepResult(self._over_replicas(total), norm, loss_scale, skipped)

    def reduced_gradients(self) -> Mapping[str, Piece]:
        """Return each parameter's gradient, or this rank's part of it."""
        return {
            name: piece_of(p.grad) if p.grad is not None else Piece.nothing(p)
            for name, p in self.parameters.items()
        }

    def _norm(self, gradients: list[torch.Tensor]) -> float:
        square = nn.utils.get_total_norm(gradients).to(self._device).square()
        if self._is_cut:
            dist.all_reduce(square)
        return math.sqrt(square.item())

    def _clip(self, gradients: list[torch.Tensor], norm: float, scale: float) -> None:
        limit, factor = self.plan.optimizer.grad_clip, 1.0 / scale
        if 0 < limit < norm:
            # As torch.nn.utils.clip_grad_norm_ does.
            factor *= limit / (norm + 1e-6)
        if factor != 1.0:
            torch._foreach_mul_(gradients, factor)

    def _over_replicas(self, loss: torch.Tensor) -> float:
        dist.all_reduce(loss)
        return float((loss / self.plan.layout.dp).item())

    @torch.no_grad()
    def evaluate(self, batches: Batches, count: int) -> float:
        """Return the mean token loss of `count` global batches; weights, gradients and counters stay."""
        micros = count * self.plan.batch.accumulation_steps
        total = torch.zeros((), device=self._device)
        self._module.eval()
        for _ in range(micros):
            total += self._module(*next(batches))
        self._module.train()
        return self._over_replicas(total / micros)

    def save_files(self, folder: Path) -> None:
        """Write this rank's weights and moments; where replicas are equal, rank 0 alone does."""
        if self._is_cut or dist.get_rank() == 0:
            rank_files.save(folder, self._own_number(), self.parameters, self._optimizer, self._scale)

    def load_files(self, folder: Path) -> None:
        """Load this rank's weights and moments; DsforgeError DSF334 for a file that does not hold them."""
        holders = dist.get_world_size() if self._is_cut else 1
        self._scale = rank_files.load(
            folder, self._own_number(), holders, self.parameters, self._optimizer, self._scale
        )

    def _own_number(self) -> int:
        return dist.get_rank() if self._is_cut else 0
