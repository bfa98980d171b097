"""Which failures are tried again, how often, and after what wait."""

from __future__ import annotations

import pytest

from dsforge.launch.restarts import POLICY, Failure, decide, wait_seconds
from dsforge.launch.signals import StopSignals
from dsforge.records.reasons import Reason
from dsforge.records.run_state import Restart
from tests.launch_support.plans import make_plan

LAUNCH = make_plan(restarts=3).launch
PASSING = ("hardware", "network", "host_lost", "preemption", "launcher", "killed", "hung")
LASTING = ("out_of_memory", "host_memory", "configuration", "environment", "numerics", "stopped")


def failure(
    reason: str, step: int | None = 5, saved: int | None = None, *, stepped: bool | None = None
) -> Failure:
    return Failure(Reason(reason), step, saved, stepped=step is not None if stepped is None else stepped)


def test_every_reason_has_its_row():
    assert set(POLICY) == set(Reason)


@pytest.mark.parametrize("reason", PASSING)
def test_what_passes_is_tried_again(reason: str):
    decision = decide(LAUNCH, (), [failure(reason)], 0.0)
    assert (decision.again, decision.left, decision.wait_seconds) == (True, 2, 0.0)


@pytest.mark.parametrize("reason", LASTING)
def test_what_would_end_the_same_way_is_not(reason: str):
    decision = decide(LAUNCH, (), [failure(reason)], 0.0)
    assert not decision.again
    assert decision.why_not == f"it would end the same way again: {reason.replace('_', ' ')}"


@pytest.mark.parametrize(
    ("reason", "again"),
    [("host_lost", True), ("killed", True), ("network", True), ("hung", False), ("program", False)],
)
def test_before_the_first_step_only_what_comes_from_outside_is_bad_luck(reason: str, again: bool):
    assert decide(LAUNCH, (), [failure(reason, None)], 0.0).again is again


def test_a_program_that_fails_twice_at_one_step_fails_there_again():
    assert decide(LAUNCH, (), [failure("program", 5)], 0.0).again
    decision = decide(LAUNCH, (), [failure("program", 5), failure("killed", 3), failure("program", 5)], 0.0)
    assert decision.why_not == "it would end the same way again: program, after step 5 as before"
    assert decide(LAUNCH, (), [failure("program", 5), failure("program", 7)], 0.0).again
    assert decide(LAUNCH, (), [failure("killed", 5), failure("killed", 5)], 0.0).again


def test_three_attempts_without_a_step_are_no_bad_luck():
    idle = failure("killed", 4, stepped=False)
    assert decide(LAUNCH, (), [idle, idle], 0.0).again
    decision = decide(LAUNCH, (), [idle, idle, idle], 0.0)
    assert decision.why_not == "it would end the same way again: killed, and 3 attempts in a row made no step"
    assert decide(LAUNCH, (), [idle, failure("killed"), idle, idle], 0.0).again


def test_the_budget_is_the_runs_or_that_of_a_window():
    made = [Restart(2, 100.0, ""), Restart(3, 500.0, ""), Restart(4, 900.0, "", requeued=True)]
    assert decide(LAUNCH, made, [failure("killed")], 1000.0).left == 0
    made.append(Restart(5, 950.0, ""))
    assert decide(LAUNCH, made, [failure("killed")], 1000.0).why_not == "all 3 of launch.restarts are used"
    windowed = LAUNCH.model_copy(update={"restart_window_seconds": 600.0})
    assert decide(windowed, made, [failure("killed")], 1000.0).left == 0
    made.append(Restart(6, 990.0, ""))
    why = "all 3 of launch.restarts are used within 600 s"
    assert decide(windowed, made, [failure("killed")], 1000.0).why_not == why
    assert decide(windowed, made, [failure("killed")], 1551.0).left == 1
    none = LAUNCH.model_copy(update={"restarts": 0})
    assert decide(none, (), [failure("killed")], 0.0).why_not == "launch.restarts is 0"


def test_waits_double_up_to_a_minute_until_a_checkpoint_is_made():
    failures: list[Failure] = []
    waits = []
    for _ in range(10):
        failures.append(failure("killed", 5, 4))
        waits.append(wait_seconds(2.0, failures))
    assert waits == [0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]
    failures.append(failure("killed", 9, 8))
    assert wait_seconds(2.0, failures) == 0.0
    failures.append(failure("killed", 9, 8))
    assert wait_seconds(2.0, failures) == 2.0
    assert wait_seconds(0.0, failures) == 0.0
    assert wait_seconds(2.0, [failure("killed", None)] * 1001) == 60.0


def test_a_wait_takes_its_time_and_a_request_to_stop_ends_it():
    now = 0.0
    signals = StopSignals()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now > 100.0:
            signals.first = 15

    assert signals.wait(30.0, lambda: now, sleep)
    assert now == pytest.approx(30.0)
    assert not signals.wait(90.0, lambda: now, sleep)
    assert now == pytest.approx(100.0, abs=0.3)
