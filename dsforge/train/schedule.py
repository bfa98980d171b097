"""The learning rate of a step.

Linear warm-up: lr x (step + 1) / warmup for step < warmup, steps counted from 0. After it progress =
(step - warmup) / max(1, steps - warmup), and the rate falls from lr to min_lr along a line or half a
cosine (Loshchilov and Hutter 2017, SGDR, equation 5); constant stays at lr.
"""

from __future__ import annotations

import math

from dsforge.plan.types import Optimizer


def learning_rate(step: int, steps: int, optimizer: Optimizer) -> float:
    """Return the learning rate of a step counted from 0 in a run of `steps`."""
    warmup = optimizer.warmup_steps
    if step < warmup:
        return optimizer.lr * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    fall = optimizer.lr - optimizer.min_lr
    if optimizer.lr_schedule == "constant":
        return optimizer.lr
    if optimizer.lr_schedule == "linear":
        return optimizer.lr - fall * progress
    return optimizer.min_lr + fall * 0.5 * (1.0 + math.cos(math.pi * progress))
