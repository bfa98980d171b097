"""The factor that keeps small gradients of fp16 from vanishing: lowered where they overflow, else raised.

The decision falls on the norm that every rank knows, so that ranks agree without asking. Where DeepSpeed
trains, it is DeepSpeed's own that decides, by the same figures (`engine_scale`).
"""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.layout.loss_scale import FIRST_POWER, LEAST, STEPS_TO_RAISE


@dataclass(slots=True)
class LossScale:
    """`value` multiplies the loss; `calm_steps` have passed since it was last changed."""

    value: float = 2.0**FIRST_POWER
    calm_steps: int = 0

    def follow(self, scaled_norm: float) -> bool:
        """Tell whether a step with this norm of scaled gradients can be taken, and adapt the scale.

        DsforgeError DSF781 when gradients overflow without any scale.
        """
        if math.isfinite(scaled_norm):
            self.calm_steps += 1
            if self.calm_steps == STEPS_TO_RAISE:
                self.value, self.calm_steps = 2 * self.value, 0
            return True
        if self.value <= LEAST:
            raise overflows_unscaled()
        self.value, self.calm_steps = self.value / 2, 0
        return False


def overflows_unscaled() -> DsforgeError:
    """Return the error of gradients that overflow without any scale."""
    return DsforgeError(
        "DSF781",
        "gradients overflow fp16 even with a loss scale of 1",
        Place(host=socket.gethostname()),
        "lower optimizer.lr, or train in bf16, whose range is that of fp32",
        ExitCode.FINDINGS,
    )
