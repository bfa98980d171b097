"""Steps that an engine skipped because gradients overflowed: counted, told, and too many of them refused."""

from __future__ import annotations

from dsforge.train.context import RankContext
from dsforge.train.engine_protocol import StepResult
from dsforge.train.finite import not_finite
from dsforge.train.recorder import Recorder

_MOST_IN_A_ROW = 3
"""Without a loss scale nothing changes by a skipped step but the samples: more of them would not end."""


class Skips:
    """The skipped steps of an attempt."""

    def __init__(self, context: RankContext, recorder: Recorder) -> None:
        self.count = 0
        self._in_a_row = 0
        self._context = context
        self._recorder = recorder

    def follow(self, step: int, result: StepResult) -> None:
        """Count a step that was skipped; DsforgeError DSF350 when bf16's gradients stay not finite."""
        if not result.skipped:
            self._in_a_row = 0
            return
        self.count += 1
        self._in_a_row += 1
        precision = self._context.plan.train.precision
        lost = f"step {step} skipped: gradients overflowed {precision}"
        self._recorder.event(
            "skipped", lost, step=step, loss_scale=result.loss_scale, skipped_steps=self.count
        )
        if result.loss_scale is None and self._in_a_row == _MOST_IN_A_ROW:
            raise not_finite(
                f"gradients were not finite in {_MOST_IN_A_ROW} steps up to {step}", self._context
            )
