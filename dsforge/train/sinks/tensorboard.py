"""TensorBoard's event files, in a folder of the attempt: pointed at the run, it shows attempt by attempt."""

from __future__ import annotations

from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import EvalLine, MetricsLine
from dsforge.train.sinks.registry import Sink

TAGS = {
    "loss": "train/loss",
    "grad_norm": "train/grad_norm",
    "learning_rate": "train/learning_rate",
    "tokens_per_second": "speed/tokens_per_second",
    "step_seconds": "speed/step_seconds",
    "memory_bytes": "memory/peak_bytes",
}
"""What of a metrics line is shown, and where."""
VALIDATION_TAG = "validation/loss"


class TensorBoard:
    """One event file; the step is the run's own, so an attempt that resumes goes on where it is."""

    def __init__(self, attempt: AttemptDir) -> None:
        # Importing it takes a second, and only rank 0 of a run that wants it should wait.
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(attempt.tensorboard))

    def write(self, line: MetricsLine | EvalLine) -> None:
        """Write a line's figures at its step and time."""
        match line:
            case EvalLine():
                figures = {VALIDATION_TAG: line.loss}
            case MetricsLine():
                figures = {
                    tag: value for name, tag in TAGS.items() if (value := getattr(line, name)) is not None
                }
        for tag, value in figures.items():
            self._writer.add_scalar(tag, value, line.step, walltime=line.time)
        self._writer.flush()  # a rank that is killed loses nothing


def open_sink(attempt: AttemptDir) -> Sink:
    """Return the sink of an attempt."""
    return TensorBoard(attempt)
