from __future__ import annotations

import pytest

from dsforge.base.canonical import dump_line
from dsforge.base.files import append_line
from dsforge.launch.follow import Follower
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import Event, ExitRecord, MetricsLine, WorldReport
from tests.launch_support.plans import make_plan


@pytest.fixture
def attempt(tmp_path) -> AttemptDir:
    return AttemptDir(tmp_path)


@pytest.fixture
def follower(attempt) -> Follower:
    return Follower(make_plan(world_size=2), attempt)


def write(path, *lines):
    for line in lines:
        append_line(path, dump_line(line.as_dict()))


def metrics(step: int, at: float) -> MetricsLine:
    return MetricsLine(at, step, 5.0 - step, None, 1e-3, 10.0, 0.1, 0)


def exit_record(rank: int, code: int = 0) -> ExitRecord:
    return ExitRecord(10.0 + rank, rank, code, "ok" if code == 0 else "exception", tail=("words",))


def report(rank: int, **changes) -> WorldReport:
    values = {"local_rank": rank, "world_size": 2, "host": "a", "node": 0, **changes}
    return WorldReport(
        time=1.0 + rank, rank=rank, pid=rank + 1, pid_start=1, trainer_pid=9, trainer_pid_start=1, **values
    )


def test_new_lines_come_once_and_by_time(follower, attempt):
    write(attempt.rank_stream(0), report(0), report(1))
    write(attempt.metrics, metrics(1, 1.5))
    assert [type(item).__name__ for item in follower.poll()] == ["WorldReport", "MetricsLine", "WorldReport"]
    assert follower.poll() == []
    assert follower.losses == {1: 4.0}
    assert follower.joined
    assert follower.silent_ranks == []


def test_a_half_written_line_waits(follower, attempt):
    line = dump_line(metrics(1, 1.0).as_dict())
    append_line(attempt.metrics, line[:20])
    assert follower.poll() == []
    append_line(attempt.metrics, line[20:])
    (item,) = follower.poll()
    assert item == metrics(1, 1.0)


def test_success_needs_every_planned_rank(follower, attempt):
    write(attempt.rank_stream(0), exit_record(0))
    (record,) = follower.poll()
    assert record.tail == ("words",)
    assert not follower.succeeded
    write(attempt.rank_stream(0), exit_record(1))
    follower.poll()
    assert follower.succeeded


def test_one_failed_rank_is_no_success(follower, attempt):
    write(attempt.rank_stream(0), exit_record(0), exit_record(1, code=1))
    follower.poll()
    assert (follower.succeeded, follower.failed) == (False, True)


def test_a_report_that_differs_is_kept_apart(follower, attempt):
    write(attempt.rank_stream(0), report(0), report(0))
    follower.poll()
    assert follower.mismatch is not None
    assert "started twice" in follower.mismatch[1]
    assert follower.silent_ranks == [1]


def test_the_supervisors_own_events_are_no_progress(follower, attempt):
    write(attempt.events, Event(1.0, "supervisor", "joined", "", {}))
    assert follower.poll() == []
    assert not follower.joined
    write(attempt.events, Event(1.0, "trainer", "joined", "", {}))
    assert len(follower.poll()) == 1
    assert follower.joined


def test_lines_of_another_kind_are_left_out(follower, attempt):
    append_line(attempt.metrics, '{"kind":"metrics","step":1}\n{"kind":"new"}\nnot json\n[]\n')
    assert follower.poll() == []
