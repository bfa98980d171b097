"""The optimizers besides DeepSpeed's own: PyTorch's, and Lion, which neither has for every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dsforge.plan.types import Optimizer

OPTIONS = ("lr", "betas", "eps", "weight_decay", "momentum")
"""What groups of parameters hold of the recipe, as far as their optimizer reads it."""


class Lion(torch.optim.Optimizer):
    """Steps of one size along the sign of a momentum (Chen et al. 2023, algorithm 2), decay apart.

    Entry by entry, so that shards of parameters can be updated each on its own.
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]  # no closure
        """Update every parameter that has a gradient."""
        assert closure is None, "the engines take no closures"
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            gradients = [weight.grad.to(weight.dtype) for weight in weights]
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight]["exp_avg"] = torch.zeros_like(weight)
            averages = [self.state[weight]["exp_avg"] for weight in weights]
            now, later = group["betas"]
            directions = torch._foreach_lerp(gradients, averages, now)
            torch._foreach_sign_(directions)
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, directions, alpha=-group["lr"])
            torch._foreach_lerp_(averages, gradients, 1 - later)


def make(groups: list[dict[str, Any]], options: Optimizer) -> torch.optim.Optimizer:
    """Return the plan's optimizer of groups of parameters, which say how they decay."""
    if options.type == "sgd":
        # PyTorch's fused SGD takes no parameters that fully_shard has cut.
        return torch.optim.SGD(groups, lr=options.lr, momentum=options.momentum, foreach=True)
    if options.type == "lion":
        return Lion(groups, lr=options.lr, betas=options.betas)
    return torch.optim.AdamW(groups, lr=options.lr, betas=options.betas, eps=options.eps, fused=True)
