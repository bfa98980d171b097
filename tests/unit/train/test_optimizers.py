"""SGD and Lion on one weight, by hand; whole runs are those of `test_deepspeed` and `test_replicas`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dsforge.plan.types import Optimizer
from dsforge.train import optimizers, reference


def options(kind: str, **more: Any) -> Optimizer:
    rest = {"min_lr": 0.0, "lr_schedule": "constant", "warmup_steps": 0, "eps": 1e-8, "grad_clip": 0.0}
    return Optimizer.model_validate({"type": kind, "weight_decay": 0.0, "betas": [0.9, 0.95], **rest, **more})


@pytest.mark.parametrize("made_by", ["trainer", "reference"])
def test_two_steps_of_lion_by_hand(made_by: str):
    weight = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    groups = [{"params": [weight], "weight_decay": 0.5}]
    chosen = options("lion", lr=0.1, betas=[0.9, 0.99])
    make = optimizers.make if made_by == "trainer" else reference.updater
    lion = make(groups, chosen)
    weight.grad = torch.tensor([0.2, -0.4, 0.0])
    lion.step()
    # Shrunk by 0.1 x 0.5, then 0.1 against the gradient's sign; the entry without a gradient only shrinks.
    assert weight.tolist() == pytest.approx([0.85, -1.8, 2.85])
    weight.grad = torch.tensor([-0.002, 0.1, 0.0])
    lion.step()
    # Momentum 0.002 and -0.004: 0.9 x 0.002 - 0.1 x 0.002 is above 0, -0.9 x 0.004 + 0.1 x 0.1 is, too.
    assert weight.tolist() == pytest.approx([0.7075, -1.81, 2.7075])


@pytest.mark.parametrize("made_by", ["trainer", "reference"])
def test_two_steps_of_sgd_by_hand(made_by: str):
    weight = torch.tensor([1.0], requires_grad=True)
    make = optimizers.make if made_by == "trainer" else reference.updater
    sgd = make([{"params": [weight], "weight_decay": 0.5}], options("sgd", lr=0.1, momentum=0.8))
    weight.grad = torch.tensor([1.0])
    sgd.step()
    assert weight.item() == pytest.approx(1.0 - 0.1 * 1.5)
    sgd.step()
    assert weight.item() == pytest.approx(0.85 - 0.1 * (0.8 * 1.5 + 1.0 + 0.5 * 0.85))
