"""Losses that jump: above the last ones by more than they scatter."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

import torch
import torch.distributed as dist

from dsforge.train.context import RankContext
from dsforge.train.finite import micro_words
from dsforge.train.recorder import Recorder

WINDOW_STEPS = 128
"""As the outlier detector of llm.c (Karpathy 2024, `llmc/outlier_detector.h`)."""
_LEAST_STEPS = 16
"""Fewer say little of how losses scatter; those of the warm-up fall so fast that none is high among them."""
_DEVIATIONS = 6.0
_LEAST_RISE = 0.1
"""Of the mean: late losses scatter so little that six deviations would be no rise that anybody minds."""


class SpikeWatch:
    """Remembers a run's last losses."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=WINDOW_STEPS)

    def follow(self, loss: float) -> float | None:
        """Return the bound that a loss is above, None where it is not, and remember it."""
        bound = None
        if len(self._losses) >= _LEAST_STEPS:
            mean = fmean(self._losses)
            rise = max(_DEVIATIONS * pstdev(self._losses), _LEAST_RISE * mean)
            bound = mean + rise if loss > mean + rise else None
        self._losses.append(loss)
        return bound


def tell_spike(
    loss: float,
    bound: float,
    losses: Sequence[torch.Tensor],
    step: int,
    context: RankContext,
    recorder: Recorder,
) -> None:
    """Record a loss above a bound and the micro-batch that it was highest in; every rank must call it.

    `losses` are those that this rank computed in the step, by micro-batch.
    """
    own = torch.stack(list(losses)).float().max(0) if losses else None
    found: list[Any] = [None] * context.world_size
    dist.all_gather_object(found, (float(own.values), int(own.indices)) if own is not None else None)
    highest = [(*one, rank) for rank, one in enumerate(found) if one is not None]
    most, micro, rank = max(highest, key=lambda one: (one[0], -one[2]))
    where = f"{most:.4f} in {micro_words(rank, micro, step, context.plan)}"
    recorder.event(
        "spike",
        f"the loss of step {step} is {loss:.4f}, above {bound:.4f} by the last ones; highest, {where}",
        step=step,
        loss=loss,
        bound=bound,
        rank=rank,
        micro_batch=micro,
    )
