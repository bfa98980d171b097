"""Lines as Megatron-DeepSpeed's training_log and evaluate_and_print_results format them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.catalog.engines.flavours import flavour_of
from dsforge.rank.metrics import LogReader
from dsforge.records.program import ProgramFile
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import EvalLine, Event, MetricsLine, parse_line, read_lines

FLAVOUR = flavour_of("megatron-deepspeed")
NO_SKIP = " number of skipped iterations:   0 | number of nan iterations:   0 |"
DRAW = "16-sample draw from"
END = f" actual seqlen:    64 |{NO_SKIP} samples per second: 13.333 | TFLOPs: 0.01 | params(B): 0.00 |"


def line(step: int, middle: str, end: str = END) -> str:
    head = f" iteration {step:8d}/{30:8d} | consumed samples: {8 * step:12d} |"
    tokens = f" consumed tokens: {512 * step:12d} | elapsed time per iteration (ms): 600.0 |"
    return f"{head}{tokens} learning rate: 2.975E-04 | global batch size:     8 |{middle}{end}"


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptDir:
    return AttemptDir(tmp_path)


def reader(attempt: AttemptDir, rank: int) -> LogReader:
    program = ProgramFile(
        flavour=FLAVOUR.name,
        folder="x",
        entry="pretrain_gpt.py",
        arguments=(),
        bases={},
        patterns=FLAVOUR.patterns,
        metrics_rank=1,
        tokens_per_step=512,
    )
    return LogReader(program, attempt, rank)


def recorded(path: Path) -> list[object]:
    return [parse_line(one) for _, one in read_lines(path)]


def test_steps_with_and_without_a_norm_and_a_scale(attempt):
    reader(attempt, 1).take(
        [
            line(1, " lm loss: 6.243871E+00 |"),
            line(2, " lm loss: 6.1E+00 | loss scale: 65536.0 | grad norm: 12.284 | num zeros: 3.0 |"),
            line(3, " lm loss: 6.0E+00 | moe loss: 1.0E-02 | grad norm: inf | params norm: 18.302 |"),
            f"[default1]:{line(4, ' lm loss: 5.9E+00 | grad norm: nan |')}",
        ]
    )
    steps = recorded(attempt.metrics)
    assert all(isinstance(one, MetricsLine) for one in steps)
    assert [(one.step, one.loss, one.grad_norm) for one in steps] == [
        (1, 6.243871, None),
        (2, 6.1, 12.284),
        (3, 6.0, None),
        (4, 5.9, None),
    ]
    assert {(one.learning_rate, one.step_seconds) for one in steps} == {(2.975e-4, 0.6)}
    assert steps[0].tokens_per_second == pytest.approx(512 / 0.6)
    assert not attempt.events.exists()


def test_a_loss_that_is_left_out_or_infinite_is_an_event(attempt):
    skipped = END.replace("iterations:   0", "iterations:   1", 1)
    reader(attempt, 1).take(
        [
            line(5, " loss scale: 32768.0 | grad norm: nan |", skipped),
            line(6, " grad norm: nan |"),
            line(7, " lm loss: INF |"),
            " validation loss at iteration 7 | lm loss value: NAN | lm loss PPL: 4.851652E+08 | ",
        ]
    )
    assert not attempt.metrics.exists()
    assert [(one.name, one.data["step"]) for one in recorded(attempt.events) if isinstance(one, Event)] == [
        ("skipped", 5),
        ("not_finite", 6),
        ("not_finite", 7),
        ("not_finite", 7),
    ]


def test_validations_are_told_from_tests_and_from_noise(attempt):
    reader(attempt, 1).take(
        [
            "-" * 90,
            " validation loss at iteration 10 | lm loss value: 5.500000E+00 | lm loss PPL: 2.446919E+02 | ",
            f" validation loss at iteration 30 on {DRAW} validation set | lm loss value: 5.250000E+00 | ",
            f" validation loss at iteration 30 on {DRAW} test set | lm loss value: 5.125000E+00 | ",
            "(min, max) time across ranks (ms):",
            "    save-checkpoint ................................: (120.13, 120.20)",
            " [2025-01-01 10:00:00] saving checkpoint at iteration      30 to /x",
            "[Rank 1] (after 1 iterations) memory (MB) | allocated: 431.2 | max allocated: 431.2",
        ]
    )
    found = recorded(attempt.metrics)
    assert all(isinstance(one, EvalLine) for one in found)
    assert [(one.step, one.loss) for one in found] == [(10, 5.5), (30, 5.25)]
    assert not attempt.events.exists()


def test_an_end_without_a_step_is_told(attempt):
    went, went_not = reader(attempt, 1), reader(attempt, 1)
    went.take([line(1, " lm loss: 6.0E+00 |")])
    went.end()
    reader(attempt, 0).end()
    assert not attempt.events.exists()
    went_not.take(["Data index creation unsuccessful, exiting."])
    went_not.end()
    assert [one.name for one in recorded(attempt.events) if isinstance(one, Event)] == ["no_step"]


def test_the_first_rank_tells_that_they_met_and_the_last_prints_steps(attempt):
    met = "> initialized tensor model parallel with size 1"
    first, last = reader(attempt, 0), reader(attempt, 1)
    first.start()
    last.start()
    first.take(["> initializing torch distributed ...", line(1, " lm loss: 6.0E+00 |")])
    assert not attempt.events.exists()
    first.take([met, "> initialized pipeline model parallel with size 2", met])
    last.take([met, line(1, " lm loss: 6.0E+00 |")])
    assert [one.name for one in recorded(attempt.events) if isinstance(one, Event)] == ["joined"]
    assert [one.step for one in recorded(attempt.metrics) if isinstance(one, MetricsLine)] == [1]
