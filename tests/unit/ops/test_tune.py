"""The layouts of a recipe are tried one after another, noted, and gone on with."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsforge.base.canonical import dump_line
from dsforge.base.errors import DsforgeError
from dsforge.launch.signals import StopSignals
from dsforge.launch.types import RunOutcome
from dsforge.ops.time_box import TimeBox
from dsforge.ops.tune import Tuned, tune
from dsforge.ops.tune_layouts import layouts_to_try, short_run
from dsforge.plan.ranking import opened, ranking
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import LoadedRecipe, load_recipe
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunExit
from dsforge.records.streams import MetricsLine
from tests.support.recipes import write

OPEN = """\
version: 1
model: {arch: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 176, vocab: 512}
cluster: {gpus_per_node: 4, gpu: cpu}
parallel: {tp: auto, pp: auto}
batch: {global: 32, micro: 2, seq_len: 64}
train: {tokens: 1M tokens, precision: fp32, eval_every: 5}
optimizer: {warmup_steps: 3}
checkpoint: {every_steps: 10}
data: {train: data/a, valid: data/b}
launch: {restarts: 2}
"""
GPUS = """\
version: 1
model: llama3-8b
cluster: {nodes: 1, gpus_per_node: 8, gpu: h100-sxm-80gb}
parallel: {tp: auto, pp: auto}
batch: {global: 128, seq_len: 4096}
train: {steps: 20}
"""
WELL = RunExit(0, "ok", "every rank ended well")
STOPPED = RunExit(130, "interrupted", "stopped by SIGINT")


class Runs:
    """Stands in for the launcher: writes what a run of so many seconds a step leaves behind."""

    def __init__(self, folder: Path, seconds: Callable[[LoadedRecipe], list[float]]) -> None:
        self.folder, self.seconds = folder, seconds
        self.ends: dict[int, RunExit | DsforgeError] = {}
        self.recipes: list[LoadedRecipe] = []

    def __call__(self, loaded: LoadedRecipe) -> RunOutcome:
        self.recipes.append(loaded)
        number = len(self.recipes)
        end = self.ends.get(number, WELL)
        if isinstance(end, DsforgeError):
            raise end
        run = RunDir(self.folder / f"run-{number}")
        run.attempt(1).path.mkdir(parents=True)
        lines = [
            MetricsLine(0.0, step, 5.0, 1.0, 1e-3, 100.0, seconds, 1000 * step)
            for step, seconds in enumerate(self.seconds(loaded), start=1)
        ]
        run.attempt(1).metrics.write_text("".join(dump_line(line.as_dict()) for line in lines))
        return RunOutcome(run.path.name, run.path, 1, end, {}, {}, None, ())


def by_tp(loaded: LoadedRecipe) -> list[float]:
    """Two slow first steps, then 2 s with TP 1, 1 s with TP 2, 3 s with TP 4."""
    seconds = {1: 2.0, 2: 1.0, 4: 3.0}[int(loaded.recipe.parallel.tp)]
    return [60.0, 50.0, seconds, seconds / 2, seconds, 2 * seconds, seconds]


def tuned(tmp_path: Path, runs: Runs, text: str = OPEN, **options: Any) -> Tuned:
    loaded = load_recipe(write(tmp_path, text))
    wanted = {"top": 3, "steps": 7, "minutes": 5.0, **options}
    return tune(loaded, runs, lambda *_: None, path=tmp_path / "c.json", **wanted)


def test_legal_layouts_are_tried_and_the_fastest_is_the_best(tmp_path: Path):
    runs = Runs(tmp_path, by_tp)
    done = tuned(tmp_path, runs, top=20)
    degrees = [
        (int(one.recipe.parallel.tp), int(one.recipe.parallel.pp), one.recipe.parallel.dp)
        for one in runs.recipes
    ]
    # Four ranks; TP 4 would cut two key-value heads; with a pipeline DeepSpeed takes ZeRO-1 at most.
    assert degrees == [(1, 1, 4), (1, 2, 2), (2, 1, 2), (1, 4, 1), (2, 2, 1)]
    assert done.best is not None
    assert done.best.values["parallel.tp"] == 2
    assert done.best.measured is not None
    # Of 1, 0.5, 1, 2 and 1 s; the first two steps are no part of it. Memory is the most of all.
    assert (done.best.measured.step_seconds, done.best.measured.steps) == (1.0, 5)
    assert done.best.measured.memory_bytes == 7000
    assert done.layouts.unranked == "CPU runs prove logic, not speed"
    assert {one.predicted_step_seconds for one in done.trials} == {None}
    assert (done.exit_code, done.left) == (0, [])


def test_it_goes_on_where_it_was_stopped(tmp_path: Path):
    runs = Runs(tmp_path, by_tp)
    runs.ends[2] = STOPPED
    runs.seconds = lambda one: by_tp(one) if len(runs.recipes) != 2 else [60.0, 50.0, 2.0]
    first = tuned(tmp_path, runs)
    assert (first.exit_code, len(first.trials), len(first.left)) == (130, 1, 2)
    again = tuned(tmp_path, runs)
    assert (again.exit_code, len(again.trials), again.left) == (0, 3, [])
    assert len(runs.recipes) == 4  # the second layout twice, the others once
    tuned(tmp_path, runs)
    assert len(runs.recipes) == 4
    tuned(tmp_path, runs, fresh=True)
    assert len(runs.recipes) == 7


def test_a_layout_that_fails_is_noted_and_the_next_one_is_tried(tmp_path: Path):
    runs = Runs(tmp_path, by_tp)
    runs.ends = {
        1: RunExit(1, "rank_failed", "rank 3 failed: ValueError\nmore", rank=3),
        2: DsforgeError("DSF750", "it does not fit", exit_code=1),
    }
    done = tuned(tmp_path, runs)
    assert [one.failure for one in done.trials] == [
        None,
        "rank_failed: rank 3 failed: ValueError",
        "DSF750: it does not fit",
    ]
    assert done.exit_code == 0
    tuned(tmp_path, runs)
    assert len(runs.recipes) == 3
    assert {one.failure for one in tuned(tmp_path, runs, retry=True).trials} == {None}
    assert len(runs.recipes) == 5
    runs.ends = dict.fromkeys(range(1, 10), RunExit(1, "rank_failed", "no"))
    assert tuned(tmp_path, runs, fresh=True).exit_code == 4


def test_the_command_shows_what_is_measured_and_the_edit(cli: Callable[..., Any], tmp_path: Path):
    runs = Runs(tmp_path, by_tp)
    runs.ends[2] = RunExit(1, "rank_failed", "rank 3 failed")
    tuned(tmp_path, runs)
    words = ("tune", tmp_path / "recipe.yaml", "--top", "3", "--steps", "7", "-o", tmp_path / "c.json")
    shown = cli(*words)
    assert shown.code == 0
    assert "no GPU speed" in shown.out
    assert "nothing was predicted: CPU runs prove logic, not speed" in shown.out
    assert "failed  TP 1 x PP 2 x DP 2, micro 2, ZeRO-1: rank_failed: rank 3 failed" in shown.out
    assert "best  TP 2 x PP 1 x DP 2, micro 2, ZeRO-1: 1 s a step" in shown.out
    assert "parallel.tp=2 parallel.dp=2 batch.micro=2" in shown.err
    told = cli(*words, "--json").json
    assert told["best"]["parallel.tp"] == 2
    assert [one["failure"] is None for one in told["trials"]] == [True, True, False]
    dealt = cli("tune", words[1], "--layers", "trainer=fsdp", "parallel.tp=1", "parallel.pp=1")
    assert dealt.code == 1
    assert dealt.err.startswith("error[DSF797]: trainer fsdp deals no layers to stages")
    wrong = cli(*words, "--layers")
    assert wrong.code == 2
    assert "--top is of layouts, and --layers tries none" in wrong.err


def test_what_no_layout_can_help_ends_it_and_keeps_what_was_measured(tmp_path: Path):
    runs = Runs(tmp_path, by_tp)
    runs.ends[2] = DsforgeError("DSF203", "0 GPUs are visible", exit_code=3)
    with pytest.raises(DsforgeError, match="0 GPUs are visible"):
        tuned(tmp_path, runs)
    assert len(json.loads((tmp_path / "c.json").read_text())["trials"]) == 1


def test_when_the_time_is_up_the_rest_is_left(tmp_path: Path):
    runs = Runs(tmp_path, by_tp)
    done = tuned(tmp_path, runs, minutes=1e-9)
    assert (done.trials, len(done.left), done.exit_code) == ([], 3, 4)

    def until_told(loaded: LoadedRecipe) -> list[float]:
        if len(runs.recipes) == 2:
            with StopSignals() as signals:
                signals.wait(30.0)
                assert signals.at_once
        return by_tp(loaded)

    runs = Runs(tmp_path / "box", until_told)
    runs.ends[2] = RunExit(131, "terminated", "stopped by SIGQUIT")
    done = tuned(tmp_path, runs, minutes=1.5 / 60)
    # What the run in progress had measured counts; nobody but the clock has stopped it.
    assert (len(done.trials), len(done.left), done.exit_code) == (2, 1, 0)


def test_between_runs_the_end_of_the_time_ends_nothing():
    before = signal.getsignal(signal.SIGQUIT)
    with TimeBox(0.01) as box:
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGQUIT)
        assert box.is_over
    assert signal.getsignal(signal.SIGQUIT) is before


def test_a_file_of_another_recipe_is_not_mixed_with_this_one(tmp_path: Path):
    runs = Runs(tmp_path, by_tp)
    tuned(tmp_path, runs)
    for text, options, told in (
        (OPEN.replace("seq_len: 64", "seq_len: 32"), {}, "another recipe"),
        (OPEN, {"steps": 9}, "steps 7, not 9"),
    ):
        with pytest.raises(DsforgeError) as caught:
            tuned(tmp_path, runs, text, **options)
        assert caught.value.code == "DSF799"
        assert told in caught.value.message
        assert "--fresh" in str(caught.value.hint)


def test_nothing_is_written_over_that_tune_did_not_write(cli: Callable[..., Any], tmp_path: Path):
    runs, recipe = Runs(tmp_path, by_tp), write(tmp_path, OPEN)
    target = tmp_path / "c.json"
    for text, code in ((OPEN, "DSF796"), ('{"kind": "layer-times"}', "DSF799")):
        target.write_text(text)
        with pytest.raises(DsforgeError) as caught:
            tuned(tmp_path, runs, fresh=True)
        assert (caught.value.code, target.read_text()) == (code, text)
    assert runs.recipes == []
    target.write_text('{"kind": "calibration"}')
    shown = cli("tune", recipe, "--layers", "-o", target)
    assert "no file of layer-times, and is not overwritten" in shown.err
    shown = cli("tune", recipe, "--layers", "-o", recipe)
    assert (shown.code, "error[DSF796]" in shown.err, recipe.read_text()) == (2, True, OPEN)
    assert len(tuned(tmp_path, runs, fresh=True).trials) == 3


def test_a_short_run_changes_nothing_that_a_step_is_made_of(tmp_path: Path):
    loaded = load_recipe(write(tmp_path, OPEN))
    values = layouts_to_try(loaded, 2).values[1]
    plan = make_plan(short_run(loaded, values, 7))
    assert (plan.train.steps, plan.train.eval_every, plan.launch.restarts) == (7, 0, 0)
    assert (plan.checkpoint.every_steps, plan.checkpoint.at_end, plan.checkpoint.resume) == (
        0,
        False,
        "never",
    )
    assert (plan.batch.global_size, plan.batch.micro, plan.batch.seq_len) == (32, 2, 64)
    assert (plan.layout.tp, plan.layout.pp, plan.layout.dp, plan.layout.zero) == (1, 2, 2, 1)
    assert [one.prefix for one in plan.data.train] == ["data/a"]


def test_on_gpus_it_tries_the_planners_best_with_what_is_predicted(tmp_path: Path):
    loaded = load_recipe(write(tmp_path, GPUS))
    best = ranking(loaded, top=3, objective="time").found
    runs = Runs(tmp_path, lambda one: [9.0] * 2 + [10.0] * 5)
    done = tuned(tmp_path, runs, GPUS)
    assert [one.values for one in done.calibration.trials] == [one.candidate.values() for one in best]
    assert [one.predicted_step_seconds for one in done.calibration.trials] == pytest.approx(
        [one.step.total for one in best]
    )
    assert done.layouts.unranked is None


def test_a_recipe_that_leaves_nothing_open_is_told_how_to(tmp_path: Path):
    fixed = load_recipe(write(tmp_path, OPEN.replace("tp: auto, pp: auto", "tp: 2")))
    with pytest.raises(DsforgeError) as caught:
        layouts_to_try(fixed, 3)
    assert caught.value.code == "DSF799"
    assert "--search" in str(caught.value.hint)
    assert len(layouts_to_try(opened(fixed, everything=True), 3).values) == 3


def test_predictions_stand_beside_what_was_measured(cli: Callable[..., Any], tmp_path: Path):
    runs = Runs(tmp_path, lambda _: [9.0] * 2 + [10.0] * 5)
    done = tuned(tmp_path, runs, GPUS, top=1)
    (trial,) = done.trials
    assert trial.predicted_step_seconds is not None
    words = ("--top", "1", "--steps", "7", "-o", tmp_path / "c.json")
    shown = cli("tune", tmp_path / "recipe.yaml", *words).out
    assert "predicted memory" in shown
    assert f"measured over predicted: x {10 / trial.predicted_step_seconds:.3g} by 1 layout measured" in shown
