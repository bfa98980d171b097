"""Lines as Megatron-LM's training_log and evaluate_and_print_results format them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.catalog.engines.flavours import flavour_of
from dsforge.rank.metrics import LogReader
from dsforge.records.program import ProgramFile
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import EvalLine, Event, MetricsLine, parse_line, read_lines

FLAVOUR = flavour_of("megatron-lm")
END = " number of skipped iterations: {:3d} | number of nan iterations:   0 |"


def line(step: int, middle: str, *, skipped: int = 0) -> str:
    head = f" [2026-11-30 00:11:14.508962] iteration {step:8d}/{30:8d} | consumed samples: {8 * step:12d} |"
    rate = " learning rate: 7.500000E-05 | global batch size:     8 |"
    return f"{head} elapsed time per iteration (ms): 250.0 |{rate}{middle}{END.format(skipped)}"


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


def test_steps_as_they_are_printed_on_the_last_rank(attempt):
    between = line(4, " lm loss: 5.1E+00 | loss scale: 1.0 | grad norm: 2.000 |").replace(
        " learning rate", " throughput per GPU (TFLOP/s/GPU): 312.4 | learning rate"
    )
    reader(attempt, 1).take(
        [
            line(1, " lm loss: 5.954378E+00 | loss scale: 1.0 | grad norm: 1.470 |"),
            line(2, " lm loss: 5.956076E+00 | loss scale: 65536.0 | grad norm: nan | num zeros: 3.0 |"),
            line(3, " mtp_1 loss: 1.0E+00 | lm loss: 5.5E+00 | loss scale: 1.0 | params norm: 18.302 |"),
            between,
            line(5, " loss scale: 4294967296.0 |", skipped=1),
            line(6, " loss scale: 1.0 | grad norm: inf |"),
        ]
    )
    steps = [one for one in recorded(attempt.metrics) if isinstance(one, MetricsLine)]
    assert [(one.step, one.loss, one.grad_norm) for one in steps] == [
        (1, 5.954378, 1.47),
        (2, 5.956076, None),
        (3, 5.5, None),
        (4, 5.1, 2.0),
    ]
    assert {(one.learning_rate, one.step_seconds, one.tokens_per_second) for one in steps} == {
        (7.5e-05, 0.25, 2048.0)
    }
    events = recorded(attempt.events)
    assert [(one.name, one.data["step"]) for one in events if isinstance(one, Event)] == [
        ("skipped", 5),
        ("not_finite", 6),
    ]


def test_validations_are_told_from_the_test_set(attempt):
    rest = "lm loss value: 6.215614E+00 | lm loss PPL: 5.005063E+02 | "
    reader(attempt, 1).take(
        [
            "-" * 90,
            f" validation loss at iteration 2 | {rest}",
            f" validation loss at iteration 4 on validation set | {rest.replace('6.2', '6.1')}",
            f" validation loss at iteration 4 on test set | {rest}",
        ]
    )
    found = recorded(attempt.metrics)
    assert [(one.step, one.loss) for one in found if isinstance(one, EvalLine)] == [
        (2, 6.215614),
        (4, 6.115614),
    ]
    assert len(found) == 2


def test_rank_0_tells_that_ranks_have_met_and_what_stand_ins_serve(attempt):
    lines = [
        "> initializing torch distributed ...",
        "dsforge: the CPU is the device; stand-ins serve torch.tensor, torch.Tensor.cuda",
        "> initialized tensor model parallel with size 2",
        "> initialized pipeline model parallel with size 1",
        line(1, " lm loss: 5.9E+00 |"),
    ]
    reader(attempt, 0).take(lines)
    assert not attempt.metrics.exists()
    events = [one for one in recorded(attempt.events) if isinstance(one, Event)]
    assert [one.name for one in events] == ["stand_in", "joined"]
    assert events[0].data == {"module": "torch.tensor, torch.Tensor.cuda"}
