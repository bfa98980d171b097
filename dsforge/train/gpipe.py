"""GPipe for DeepSpeed's pipeline engine: all forward passes of a step, then all backward passes.

Source: Huang et al. 2019 (arXiv:1811.06965), section 2.3. Backward passes take the micro-batches in the order
of the forward ones, as those of 1F1B do, so that both schedules add up gradients in one order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deepspeed.runtime.pipe import schedule
from deepspeed.runtime.pipe.schedule import PipeInstruction


class ForwardKeepingLoss(schedule.BufferOpInstruction):
    """Compute a forward pass; the last stage keeps its loss in the buffer."""


class BackwardOfKeptLoss(schedule.BufferOpInstruction):
    """Compute a backward pass; on the last stage that of the buffer's loss."""


class GPipe(schedule.PipeSchedule):
    """A stage's instructions; it holds a buffer for each micro-batch."""

    def steps(self) -> Iterator[list[PipeInstruction]]:
        """Yield the instructions of each pass, and with the last one those that end the step."""
        for micro in range(self.micro_batches):
            ends = self.is_first_stage or self.is_last_stage
            receives: list[PipeInstruction] = [] if self.is_first_stage else [schedule.RecvActivation(micro)]
            loads: list[PipeInstruction] = [schedule.LoadMicroBatch(micro)] if ends else []
            sends: list[PipeInstruction] = [] if self.is_last_stage else [schedule.SendActivation(micro)]
            yield [*receives, *loads, ForwardKeepingLoss(micro), *sends]
        for micro in range(self.micro_batches):
            receives = [] if self.is_last_stage else [schedule.RecvGrad(micro)]
            sends = [] if self.is_first_stage else [schedule.SendGrad(micro)]
            yield [*receives, BackwardOfKeptLoss(micro), *sends]
        yield [schedule.ReduceTiedGrads(), schedule.ReduceGrads(), schedule.OptimizerStep()]


def use_gpipe(engine: Any) -> None:
    """Let a pipeline engine train by it; it validates as before."""

    def forward(engine: Any, buffer_id: int) -> None:
        engine._exec_forward_pass(buffer_id)
        if engine.is_last_stage():
            # The engine holds one loss, that of the last forward pass.
            engine.pipe_buffers["outputs"][buffer_id] = engine.loss

    def backward(engine: Any, buffer_id: int) -> None:
        if engine.is_last_stage():
            engine.loss = engine.pipe_buffers["outputs"][buffer_id]
            engine.pipe_buffers["outputs"][buffer_id] = None
        engine._exec_backward_pass(buffer_id)

    engine._INSTRUCTION_MAP = {
        **engine._INSTRUCTION_MAP,
        ForwardKeepingLoss: forward,
        BackwardOfKeptLoss: backward,
    }
    engine._train_schedule = lambda: GPipe(engine.micro_batches, engine.num_stages, engine.stage_id)
