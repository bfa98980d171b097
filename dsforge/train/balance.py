"""The loss that keeps experts evenly used (Fedus et al. 2021, equations 4 to 6), from the routers' scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dsforge.plan.types import Plan


@dataclass(frozen=True, slots=True)
class Balance:
    """A coefficient; `active` experts a token; each layer by itself, or all layers `together`."""

    coefficient: float
    active: int
    together: bool

    def add_gradient(self, loss: torch.Tensor, routed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a loss of the same value, to whose gradient this one's is added.

        `routed`: a layer's scores [tokens, experts] each.
        """
        own = self.coefficient * self.of(routed)
        return loss + (own - own.detach())

    def of(self, routed: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the loss without its coefficient, which is 1 a layer where all experts are alike.

        Together: Hugging Face's `load_balancing_loss_func`, which is `active` there.
        """
        shares = torch.stack([self._shares(scores) for scores in routed])
        if self.together:
            used, likely = shares.mean(0)
            return (used * likely).sum() * used.numel() * self.active
        used, likely = shares.unbind(1)
        return (used * likely).sum() * used.shape[-1]

    def _shares(self, scores: torch.Tensor) -> torch.Tensor:
        """Return [2, experts]: each one's share of the choices, and its mean chance."""
        chances = scores.float().softmax(-1)
        chosen = chances.topk(self.active).indices
        used = nn.functional.one_hot(chosen, chances.shape[-1]).sum((0, 1)) / chosen.numel()
        return torch.stack((used, chances.mean(0)))


def balance_of(plan: Plan) -> Balance | None:
    """Return the plan's balance loss; None where it has none."""
    experts, train = plan.model.experts, plan.train
    if experts is None or not train.balance_loss:
        return None
    return Balance(train.balance_loss, experts.active, train.balance_over == "model")
