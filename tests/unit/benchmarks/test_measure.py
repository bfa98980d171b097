"""What the benchmarks reckon with."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.recipes import ROOT


@pytest.fixture
def measure(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import measure

    return measure


def test_contestants_take_turns_and_another_begins_each_round(measure):
    order: list[str] = []

    def contestant(name: str):
        def run() -> float:
            order.append(name)
            return float(len(order))

        return run

    figures = measure.in_turn({name: contestant(name) for name in "abc"}, 3)
    assert "".join(order) == "abcbcacab"
    assert figures == {"a": [1.0, 6.0, 8.0], "b": [2.0, 4.0, 9.0], "c": [3.0, 5.0, 7.0]}


def test_a_ratio_is_of_figures_of_the_same_round(measure):
    """2, 10 and 1 times in the rounds: twice; the medians, 10 and 4, would say 2.5 times."""
    assert measure.ratio([2.0, 40.0, 10.0], [1.0, 4.0, 10.0]) == 2.0
    assert measure.medians({"ours": [2.0, 41.23, 200.0]}, 1) == {"ours": 41.2}
    found = measure.spread([2.0, 40.0, 10.0], [1.0, 4.0, 10.0])
    assert found == {"median": 2.0, "least": 1.0, "largest": 10.0}


def test_cpu_time_is_that_of_the_work_and_not_of_waiting(measure):
    """A program that waits a second and one that computes until it has used half a second."""

    def cost(code: str) -> float:
        return measure.cpu_seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    computing = cost("import time\nwhile time.process_time() < 1: pass")
    assert computing >= 1
    assert cost("import time; time.sleep(1)") < computing


def test_the_first_steps_are_not_counted(measure, tmp_path):
    times = [0.0, 100.0, 200.0, 300.0, 301.0, 303.0, 304.0]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"loss": time, "time": time}) + "\n" for time in times))
    steps = measure.read_steps(path)
    assert (steps.seconds, steps.losses) == (1.0, times)


def test_the_trees_own_package_is_measured(measure):
    found = measure.environment(OMP_NUM_THREADS="3")
    assert (found["PYTHONPATH"], found["OMP_NUM_THREADS"]) == (str(ROOT), "3")
    assert found["PATH"].startswith(str(measure.BIN))
    assert measure.machine()["cores"] >= 1


def test_a_contestant_that_fails_ends_the_benchmark(measure):
    with pytest.raises(SystemExit, match="ended with 3"):
        measure.run(["sh", "-c", "exit 3"], environ=measure.environment())
