"""Lines as GPT-NeoX's training_log and log_eval_results format them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.catalog.engines.flavours import flavour_of
from dsforge.rank.metrics import LogReader
from dsforge.records.program import ProgramFile
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import EvalLine, Event, MetricsLine, parse_line, read_lines

FLAVOUR = flavour_of("gpt-neox")


def line(step: int, losses: str, skipped: int = 0, more: str = "") -> str:
    head = f" samples/sec: {13.333:.3f} | iteration {step:8d}/{30:8d} |"
    times = f" elapsed time per iteration (ms): {600:.1f} | learning rate: {2.975e-4:.3E} |"
    flops = f" approx flops per GPU: 12.3TFLOPS |{more}"
    counts = f" number of skipped iterations: {skipped:3d} | number of nan iterations: {0:3d} |"
    return f"{head}{times}{flops}{losses}{counts}"


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptDir:
    return AttemptDir(tmp_path)


def take(attempt: AttemptDir, *said: str) -> None:
    program = ProgramFile(
        flavour=FLAVOUR.name,
        folder="x",
        entry="train.py",
        arguments=(),
        bases={},
        patterns=FLAVOUR.patterns,
        metrics_rank=0,
        tokens_per_step=512,
    )
    LogReader(program, attempt, 0).take(said)


def recorded(path: Path) -> list[object]:
    return [parse_line(one) for _, one in read_lines(path)]


def test_steps_of_every_form(attempt: AttemptDir):
    take(
        attempt,
        line(1, f" lm_loss: {6.25:.6E} |"),
        line(2, f" reward: {1.5:.6E} | lm_loss: {-0.5:.6E} | loss scale: {65536:.1f} |"),
        line(3, f" lm_loss: {5.0:.6E} |", more=" MFU: 41.20% | HFU: 55.01% |"),
        f"[default0]:{line(4, f' lm_loss: {4.0:.6E} |')}",
        "time (ms) | forward: 100.00 | backward: 120.00 | optimizer: 30.00",
        "[2026-01-01 10:00:00,000] [INFO] [logging.py:107:log_dist] [Rank 0] step=4, skipped=0, lr=[0.0003]",
    )
    steps = [one for one in recorded(attempt.metrics) if isinstance(one, MetricsLine)]
    assert [(one.step, one.loss) for one in steps] == [(1, 6.25), (2, -0.5), (3, 5.0), (4, 4.0)]
    assert {(one.learning_rate, one.step_seconds) for one in steps} == {(2.975e-4, 0.6)}
    assert not attempt.events.exists()


def test_skipped_steps_and_losses_that_are_no_numbers_are_events(attempt: AttemptDir):
    take(
        attempt,
        line(1, f" loss scale: {65536:.1f} |", skipped=1),
        line(2, f" lm_loss: {0.0:.6E} | loss scale: {32768:.1f} |", skipped=1),
        line(3, f" lm_loss: {float('nan'):.6E} |"),
        line(4, f" lm_loss: {float('inf'):.6E} |"),
        f" validation results at iteration 4 | lm_loss value: {float('nan'):.6E} | lm_loss_ppl value: NAN | ",
    )
    assert not attempt.metrics.exists()
    events = [(one.name, one.data["step"]) for one in recorded(attempt.events) if isinstance(one, Event)]
    assert events == [("skipped", 1), ("skipped", 2), *(("not_finite", step) for step in (3, 4, 4))]


def test_validations_and_the_meeting_of_ranks(attempt: AttemptDir):
    words = f"lm_loss value: {2.5:.6E} | lm_loss_ppl value: {12.2:.6E} | "
    take(
        attempt,
        "NeoXArgs.configure_distributed_args() using world size: 2 and model-parallel size: 1 ",
        "> initializing torch distributed ...",
    )
    assert not attempt.events.exists()
    take(
        attempt,
        "> initializing model parallel with size 1",
        "> setting random seeds to 1234 ...",
        f" validation results at iteration 7 | {words}",
        f" validation/code results at iteration 7 | {words}",
        f" validation results at the end of training for val data | {words}",
        f" test results at the end of training for test data | {words}",
    )
    assert [one.name for one in recorded(attempt.events) if isinstance(one, Event)] == ["joined"]
    (validation,) = recorded(attempt.metrics)
    assert isinstance(validation, EvalLine)
    assert (validation.step, validation.loss) == (7, 2.5)
