from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dsforge.base.canonical import dump_line
from dsforge.base.errors import DsforgeError
from dsforge.base.files import append_line
from dsforge.records.run_state import RunExit
from dsforge.records.streams import EvalLine, ExitRecord, MetricsLine, WorldReport
from dsforge.runs.details import ValidationSummary, show_run
from dsforge.runs.logs import LogLine, read_logs
from dsforge.runs.registry import list_runs
from tests.launch_support.run_folders import NOBODY, make_run, write_lines


def metrics(step: int, loss: float, seconds: float, memory: int = 100) -> MetricsLine:
    return MetricsLine(float(step), step, loss, None, 1e-3, 100.0 / seconds, seconds, memory)


@pytest.fixture
def run_dir(tmp_path):
    run_dir = make_run(
        tmp_path, "a", attempt=2, state="failed", exit=RunExit(1, "rank_failed", "rank 1", rank=1)
    )
    first, second = run_dir.attempt(1), run_dir.attempt(2)
    write_lines(first.metrics, metrics(1, 5.0, 9.0), metrics(2, 4.0, 1.0), metrics(3, 3.5, 3.0, 900))
    write_lines(second.metrics, metrics(3, 3.0, 9.0), metrics(4, 2.0, 2.0, 500))
    write_lines(
        second.rank_stream(0),
        WorldReport(1.0, 1, 1, 2, "h", 0, 11, 1, 12, 1),
        WorldReport(1.0, 0, 0, 2, "h", 0, 9, 1, 10, 1),
        ExitRecord(9.0, 0, 1, "exception", failed_at=8.0, tail=("rank 0 followed",)),
        ExitRecord(
            9.5,
            1,
            1,
            "exception",
            failed_at=7.0,
            tail=("step 4", "Traceback (most recent call last):", "Oops"),
        ),
    )
    second.log(0).write_text("[rank 0] zero\n[rank 1] one\nno mark\n[rank 1] [rank 0] quoted\n")
    second.launcher_log.write_text("launcher words\n")
    first.log(0).write_text("[rank 0] of the first attempt\n")
    return run_dir


def test_repeated_steps_count_once_and_warm_up_is_left_out(run_dir):
    details = show_run(run_dir)
    assert details.metrics is not None
    assert (details.metrics.steps, details.metrics.first_step, details.metrics.last_step) == (4, 1, 4)
    assert (details.metrics.first_loss, details.metrics.last_loss) == (5.0, 2.0)
    assert details.metrics.median_step_seconds == 2.0  # of 1, 3 and 2
    assert details.metrics.median_tokens_per_second == 50.0
    assert details.metrics.peak_memory_bytes == 500  # step 3 as it was made last


def test_attempts_keep_ranks_in_order_and_exits_by_failure(run_dir):
    second = show_run(run_dir).attempts[1]
    assert [report.rank for report in second.reports] == [0, 1]
    assert [record.rank for record in second.exits] == [1, 0]
    assert second.exits[0].tail[-1] == "Oops"


def test_a_run_without_a_step_has_no_figures(tmp_path):
    details = show_run(make_run(tmp_path, "b"))
    assert (details.metrics, details.validation) == (None, None)


def test_validations_stand_among_the_metrics_and_count_once(run_dir):
    first, second = run_dir.attempt(1), run_dir.attempt(2)
    write_lines(first.metrics, EvalLine(2.0, 2, 3.5, 64, 1.0), EvalLine(3.0, 3, 1.0, 64, 1.0))
    write_lines(second.metrics, EvalLine(9.0, 3, 3.25, 64, 1.0), EvalLine(9.5, 4, 3.75, 64, 1.0))
    details = show_run(run_dir)
    assert details.metrics is not None
    assert details.metrics.steps == 4
    assert details.validation == ValidationSummary(3, 64, 4, 3.75, 3, 3.25)


def test_the_first_error_comes_from_its_traceback_on(run_dir):
    logs = read_logs(run_dir)
    assert logs.first_error == (LogLine(1, "Traceback (most recent call last):"), LogLine(1, "Oops"))
    assert list(logs.lines()) == [
        LogLine(0, "zero"),
        LogLine(1, "one"),
        LogLine(None, "no mark"),
        LogLine(1, "[rank 0] quoted"),
        LogLine(None, "launcher words"),
    ]


def test_one_ranks_lines(run_dir):
    logs = read_logs(run_dir, rank=1)
    assert [line.text for line in logs.lines()] == ["one", "[rank 0] quoted"]
    assert read_logs(run_dir, rank=0).first_error == ()


def test_one_nodes_lines(run_dir):
    assert [line.text for line in read_logs(run_dir, node=0).lines()] == [
        "zero",
        "one",
        "no mark",
        "[rank 0] quoted",
    ]
    with pytest.raises(DsforgeError, match="no node 1") as caught:
        read_logs(run_dir, node=1)
    assert caught.value.hint == "there are nodes 0 to 0"


def test_a_rank_that_is_not_there_is_an_error_with_those_that_are(run_dir):
    with pytest.raises(DsforgeError, match="no rank 7") as caught:
        read_logs(run_dir, rank=7)
    assert (caught.value.code, caught.value.exit_code) == ("DSF223", 2)
    assert caught.value.hint == "there are ranks 0 to 1"


def test_colours_of_a_rank_are_not_shown(tmp_path):
    run_dir = make_run(tmp_path, "d")
    run_dir.attempt(1).log(0).write_text("[rank 0] \x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b[Kplain\n")
    assert list(read_logs(run_dir).lines()) == [LogLine(0, "red plain")]


def test_an_attempt_that_a_state_only_claims_is_not_looked_for(tmp_path):
    run_dir = make_run(tmp_path, "e", attempt=3)
    for number in (2, 3):
        run_dir.attempt(number).path.rmdir()
    (run_dir.path / "attempt-02").mkdir()
    (run_dir.path / "attempt-x").mkdir()
    assert [attempt.number for attempt in show_run(run_dir).attempts] == [1]
    with pytest.raises(DsforgeError, match="no attempt 3") as caught:
        read_logs(run_dir)
    assert caught.value.hint == "there are: 1"


def test_figures_that_a_program_does_not_tell_are_none(run_dir):
    unknown = {"tokens_per_second": None, "step_seconds": None, "memory_bytes": None}
    for number in run_dir.attempts():
        run_dir.attempt(number).metrics.unlink()
    append_line(run_dir.attempt(1).metrics, dump_line({**metrics(1, 4.0, 1.0).as_dict(), **unknown}))
    found = show_run(run_dir).metrics
    assert found is not None
    assert (found.steps, found.last_loss) == (1, 4.0)
    assert found.median_step_seconds is found.median_tokens_per_second is found.peak_memory_bytes is None


def test_a_line_with_a_value_of_another_type_is_left_out(run_dir):
    stream = run_dir.attempt(2).metrics
    before = show_run(run_dir).metrics
    for changes in ({"loss": "low"}, {"step": 1.5}, {"step": True}, {"memory_bytes": 1.5}):
        append_line(stream, dump_line({**metrics(9, 9.0, 9.0).as_dict(), **changes}))
    assert show_run(run_dir).metrics == before


def test_another_attempt(run_dir):
    logs = read_logs(run_dir, attempt=1)
    assert list(logs.lines()) == [LogLine(0, "of the first attempt")]
    with pytest.raises(DsforgeError, match="no attempt 3"):
        read_logs(run_dir, attempt=3)


def test_a_rank_killed_with_its_wrapper_is_read_from_the_nodes_log(tmp_path):
    run_dir = make_run(tmp_path, "c", state="failed", exit=RunExit(137, "rank_killed", "", rank=1, signal=9))
    run_dir.attempt(1).log(0).write_text("[rank 0] zero\n[rank 1] last words\n")
    assert read_logs(run_dir).first_error == (LogLine(1, "last words"),)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), Path.mkdir])
@pytest.mark.parametrize(
    "name",
    [
        "state.json",
        "manifest.json",
        "slurm-job",
        "lease",
        "attempt-1/metrics.jsonl",
        "attempt-1/ranks-0.jsonl",
    ],
)
def test_what_is_no_file_in_one_run_keeps_no_other_from_being_listed(
    tmp_path: Path, make: Callable[[Path], None], name: str
):
    make_run(tmp_path, "well", started_time=200.0)
    broken = make_run(tmp_path, "broken", supervisor=NOBODY)
    (broken.path / "manifest.json").write_text("{}")
    (broken.path / name).unlink(missing_ok=True)
    make(broken.path / name)
    assert {run.run_id: run.state for run in list_runs(tmp_path)}["well"] == "lost"  # nobody holds its lease
    assert len(list_runs(tmp_path)) == 2


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd")])
@pytest.mark.parametrize("name", ["node-0.log", "launcher.log", "ranks-0.jsonl"])
def test_a_log_that_is_a_link_or_a_pipe_is_not_shown(tmp_path: Path, make: Callable[[Path], None], name: str):
    run_dir = make_run(tmp_path, "a")
    make(run_dir.attempt(1).path / name)
    with pytest.raises(OSError, match=r"not a regular file|a link, which") as fault:
        list(read_logs(run_dir).lines())
    assert os.fspath(fault.value.filename) == str(run_dir.attempt(1).path / name)
    assert fault.value.errno in (errno.EINVAL, errno.ELOOP)


def test_an_attempt_that_leads_elsewhere_is_none(tmp_path: Path):
    run_dir = make_run(tmp_path, "a")
    run_dir.attempt(1).path.rename(tmp_path / "elsewhere")
    run_dir.attempt(1).path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DsforgeError, match="no attempt 1"):
        read_logs(run_dir)


def test_a_line_without_end_is_cut_and_says_so(tmp_path: Path):
    run_dir = make_run(tmp_path, "a")
    run_dir.attempt(1).log(0).write_text(
        "[rank 0] " + "x" * 200_000 + "\n[rank 1] next\n[rank 1] " + "y" * 65_526 + "\n"
    )
    first, second, third = read_logs(run_dir).lines()
    assert (first.rank, first.text) == (0, "x" * (65_536 - 9) + " [134,473 bytes more]")
    assert (second, third) == (LogLine(1, "next"), LogLine(1, "y" * 65_526))
