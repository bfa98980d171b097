"""DeepSpeed's loss scale in fp16: moved when a step is over, and an error where nothing is left of it."""

from __future__ import annotations

from typing import Any

from dsforge.layout.loss_scale import LEAST
from dsforge.train.loss_scale import overflows_unscaled


class EngineScale:
    """The loss scale of a ZeRO optimizer.

    The optimizer itself would raise the scale before it divides the step's gradients by it, and so halve them
    (deepspeed 0.19.8, `runtime/zero/stage_1_and_2.py` and `stage3.py`, `step`).
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._move = optimizer._update_scale
        optimizer._update_scale = lambda _overflow: None

    def follow(self) -> float:
        """Return what the step that is over was scaled by, and adapt the scale to what became of it.

        DsforgeError DSF781 when gradients overflow without any scale.
        """
        used, overflowed = float(self._optimizer.loss_scale), bool(self._optimizer.overflow)
        if overflowed and used <= LEAST:
            raise overflows_unscaled()
        self._move(overflowed)
        return used
