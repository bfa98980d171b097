from __future__ import annotations

from dsforge.launch.pace import Pace


def changes(*seconds: float) -> list[int]:
    """Return which of these steps told of a change."""
    pace = Pace()
    return [number for number, one in enumerate(seconds) if pace.take(one)]


def test_three_slow_steps_in_a_row_are_a_slow_run_and_three_usual_ones_none():
    assert changes(*[2.0] * 10, 7.0, 7.0, 7.0, 7.0, 7.0, 2.0, 2.0, 2.0, 2.0) == [12, 17]


def test_a_slow_step_now_and_then_is_none():
    assert changes(*[2.0] * 10, *[9.0, 9.0, 2.0] * 20) == []


def test_what_took_three_times_as_long_is_not_yet_slow():
    assert changes(*[2.0] * 10, *[6.0] * 9) == []


def test_short_steps_vary():
    assert changes(*[0.01] * 10, *[0.9] * 9) == []
    assert changes(*[0.01] * 10, *[1.1] * 3) == [12]


def test_the_first_steps_show_what_is_usual():
    assert changes(60.0, *[2.0] * 9, 7.0, 7.0, 7.0) == [12]
    assert changes(*[2.0] * 9, *[7.0] * 3) == []


def test_a_run_that_stays_slow_is_told_once_and_knows_what_was_usual():
    pace = Pace()
    told = [pace.take(one) for one in (*[2.0] * 10, *[7.0] * 100)]
    assert (told.count(True), pace.is_slow, pace.usual_seconds) == (1, True, 2.0)
