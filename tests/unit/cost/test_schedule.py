"""Simulated schedules stand still as long as the formulas say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsforge.cost.schedule import bubble_share, simulate


def test_two_stages_and_two_micro_batches_by_hand():
    made = simulate("1f1b", 2, 1, 2)
    first = [(one.kind, one.micro, one.start, one.end) for one in made.stages[0]]
    second = [(one.kind, one.micro, one.start, one.end) for one in made.stages[1]]
    assert first == [("F", 0, 0, 1), ("F", 1, 1, 2), ("B", 0, 4, 6), ("B", 1, 7, 9)]
    assert second == [("F", 0, 1, 2), ("B", 0, 2, 4), ("F", 1, 4, 5), ("B", 1, 5, 7)]
    assert made.bubble == pytest.approx(3 / 9)


@given(st.sampled_from(["gpipe", "1f1b"]), st.integers(1, 9), st.integers(1, 20))
def test_plain_schedules_stand_still_for_p_less_one_passes(schedule: str, stages: int, micros: int):
    made = simulate(schedule, stages, 1, micros)
    assert made.end == pytest.approx(3 * (micros + stages - 1))
    assert made.bubble == pytest.approx(bubble_share(stages, 1, micros))
    assert all(made.busy(stage) == pytest.approx(3 * micros) for stage in range(stages))


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 4))
def test_virtual_stages_divide_the_bubble(stages: int, parts: int, rounds: int):
    made = simulate("interleaved", stages, parts, rounds * stages)
    assert made.bubble == pytest.approx(bubble_share(stages, parts, rounds * stages))


def test_1f1b_keeps_no_more_micro_batches_than_there_are_stages_behind():
    made = simulate("1f1b", 4, 1, 12)
    for stage, passes in enumerate(made.stages):
        held, most = 0, 0
        for one in passes:
            held += 1 if one.kind == "F" else -1
            most = max(most, held)
        assert most == 4 - stage
    gpipe = simulate("gpipe", 4, 1, 12)
    assert [one.kind for one in gpipe.stages[0]] == ["F"] * 12 + ["B"] * 12
