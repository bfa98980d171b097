"""Validation during training: the same samples every time, in every layout, nothing of training touched."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dsforge.train.batches import micro_batches, no_batches, to_device
from dsforge.train.context import RankContext
from dsforge.train.finite import check_validation
from dsforge.train.samples import validation_samples

if TYPE_CHECKING:
    import torch

    from dsforge.train.engine_protocol import Engine
    from dsforge.train.recorder import Recorder


class Validation:
    """What a rank needs to validate; `sees_data` on the first and the last stage."""

    def __init__(self, context: RankContext, replica: int, device: torch.device, *, sees_data: bool) -> None:
        plan = context.plan
        self._context = context
        self._replica = replica
        self._device = device
        wanted = plan.train.eval_every > 0 and sees_data
        self._samples = validation_samples(plan, context.sources) if wanted else None

    def follow(self, step: int, engine: Engine, recorder: Recorder) -> None:
        """Validate after a step if the plan says so; every rank must call it after every step.

        DsforgeError DSF350 for a loss that is not finite.
        """
        plan = self._context.plan
        every = plan.train.eval_every
        if not every or (step % every and step != plan.train.steps):
            return
        began = time.perf_counter()
        count = plan.train.eval_samples // plan.batch.global_size
        batches = no_batches()
        if self._samples is not None:
            batches = micro_batches(self._samples, plan, self._replica, range(count))
        loss = engine.evaluate(to_device(batches, self._device), count)
        check_validation(loss, step, self._context, recorder)
        recorder.evaluation(step, loss, plan.train.eval_samples, time.perf_counter() - began)
