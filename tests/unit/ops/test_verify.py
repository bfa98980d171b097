from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.launch.types import RunOutcome
from dsforge.ops.close_calls import Settled
from dsforge.ops.reference_run import Reference
from dsforge.ops.verify import VerifyResult, _judge
from dsforge.plan.words import not_exercised
from dsforge.records.run_state import RunExit
from tests.support.recipes import plan_of

LOSSES = {1: 5.0, 2: 4.0}


def judged(validation: dict[int, float], losses: dict[int, float] = LOSSES) -> VerifyResult:
    outcome = RunOutcome("r", Path("r"), 1, RunExit(0, "ok", ""), losses, validation, None, ())
    reference = Reference((5.0, 4.0), (1.0, 1.0), 2, {2: 4.5}, Path("w"))
    return _judge(plan_of(), outcome, Settled(reference), 0.0, (), ("CP", "EP"))


def test_a_layout_is_the_same_when_it_is_judged_the_same_too():
    result = judged({2: 4.5 + 5e-6})
    assert result.passed
    assert result.max_abs_loss_diff == 0
    assert result.max_abs_validation_diff == pytest.approx(5e-6)
    assert result.as_dict()["not_exercised"] == ["CP", "EP"]
    told = [not_exercised(kinds) for kinds in (result.not_exercised, ())]
    assert told == [", but CP, EP not exercised", ""]


def test_another_validation_loss_is_found_though_training_is_the_same():
    result = judged({2: 4.5 + 5e-5})
    assert not result.passed
    assert (result.max_abs_loss_diff, result.max_abs_validation_diff) == (0, pytest.approx(5e-5))
    assert "of a validation 5.00e-05, tolerance 1e-05" in result.why


def test_another_loss_is_found_though_the_validation_is_the_same():
    assert not judged({2: 4.5}, {1: 5.0, 2: 4.0 + 5e-5}).passed


@pytest.mark.parametrize(
    ("norms", "calm", "steady"),
    [
        ((1.0, 1.1, 0.9), True, True),
        ((1.0, 1.4, 2.0, 2.9, 1.0), False, True),
        ((1.0, 1.0, 1.6), False, False),
    ],
)
def test_gradients_that_grow_are_told_from_those_that_jump(norms, calm, steady):
    reference = Reference((5.0, 4.0), norms, 2, {}, Path("w"))
    assert (reference.calm, reference.steady) == (calm, steady)


@pytest.mark.parametrize("validation", [{}, {1: 4.5}, {1: 4.5, 2: 4.5}])
def test_a_validation_that_was_left_out_is_found(validation):
    result = judged(validation)
    assert not result.passed
    assert "the reference after [2]" in result.why
