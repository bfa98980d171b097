"""A blend and its validation: the reference's figures in every layout, through a kill, nothing disturbed."""

from __future__ import annotations

import email
import html
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dsforge.base.processes import ProcessId, send_signal
from dsforge.data.prepare import prepare
from dsforge.records import environment
from dsforge.records.checkpoint import whole_checkpoints
from dsforge.records.run_dir import RunDir
from dsforge.records.streams import EvalLine, MetricsLine, WorldReport, parse_line, read_lines
from dsforge.train.sinks.tensorboard import TAGS, VALIDATION_TAG

pytestmark = pytest.mark.e2e

RECIPE = """\
version: 1
name: blended
model: {arch: gpt, layers: 2, hidden: 32, heads: 2, vocab: 300}
cluster: {gpus_per_node: 2, gpu: cpu}
batch: {global: 4, micro: 1, seq_len: 16}
train: {steps: 40, precision: fp32, eval_every: 20, eval_samples: 16}
optimizer: {lr_schedule: constant}
data: {train: [[0.7, ../sets/a], [0.3, ../sets/b]], valid: [[1, ../sets/c], [2, ../sets/d]], workers: 1}
checkpoint: {dir: kept, every_steps: 20, keep: 2}
monitor: {tensorboard: true}
"""
UNJUDGED = ("train.eval_every=0", "train.eval_samples=null", "data.valid=null")
LONG = "train.steps=120"
TOLERANCE = 1e-5
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sets that the recipe names; a run goes through the small b more than twice."""
    root = tmp_path_factory.mktemp("blend")
    json_folder, email_folder = Path(json.__file__).parent, Path(email.__file__).parent
    prepare([json_folder / "decoder.py"], root / "sets" / "a", vocab=300)
    tokenizer = root / "sets" / "a.tokenizer.json"
    (root / "b.txt").write_text(Path(html.__file__).read_text()[:1200])
    small = prepare([root / "b.txt"], root / "sets" / "b", tokenizer=tokenizer)
    assert small.tokens / 16 < 144 / 2  # 0.3 of 120 steps of 4 samples
    prepare([json_folder / "encoder.py"], root / "sets" / "c", tokenizer=tokenizer)
    prepare([email_folder / "utils.py"], root / "sets" / "d", tokenizer=tokenizer)
    return root


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", environment.ROOT: str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out


def launch(folder: Path, *changes: str) -> dict[str, Any]:
    return json.loads(finish(start(folder, "dsforge.cli", "launch", "recipe.yaml", "--json", *changes)))


@pytest.fixture(scope="module")
def reference(root: Path) -> dict[str, Any]:
    """What one plain process computes of the plan."""
    folder = root / "reference"
    (folder.parent / "reference").mkdir()
    plan = finish(start(folder, "dsforge.cli", "plan", "recipe.yaml", "--json"))
    (folder / "plan.json").write_text(plan)
    finish(start(folder, "dsforge.train.reference", "--plan", "plan.json", "--out", "."))
    return json.loads((folder / "losses.json").read_text())


@pytest.fixture(scope="module")
def pipeline(root: Path) -> dict[str, Any]:
    """An undisturbed run of two stages."""
    return launch(root / "pipeline", "parallel.pp=2", LONG)


def assert_judged_as(reference: dict[str, Any], result: dict[str, Any]) -> None:
    apart = [abs(a - b) for a, b in zip(result["losses"], reference["losses"], strict=False)]
    assert len(apart) == 40
    assert max(apart) <= TOLERANCE
    judged = reference["validation_losses"]
    assert list(judged) == ["20", "40"]
    assert judged["40"] < judged["20"]
    for step, loss in judged.items():
        assert result["validation_losses"][step] == pytest.approx(loss, rel=0, abs=TOLERANCE)


def test_a_pipeline_is_judged_as_the_reference_and_trains_as_without(root, reference, pipeline):
    assert_judged_as(reference, pipeline)
    assert list(pipeline["validation_losses"]) == ["20", "40", "60", "80", "100", "120"]
    unjudged = launch(root / "unjudged pipeline", "parallel.pp=2", LONG, *UNJUDGED)
    assert unjudged["validation_losses"] == {}
    assert unjudged["losses"] == pipeline["losses"]


def test_replicas_are_judged_as_the_reference_and_train_as_without(root, reference):
    result = launch(root / "replicas")
    assert_judged_as(reference, result)
    assert launch(root / "unjudged replicas", *UNJUDGED)["losses"] == result["losses"]


def test_shards_are_judged_as_the_reference(root, reference):
    assert_judged_as(reference, launch(root / "shards", "parallel.tp=2"))


def figures(run: RunDir, attempt: int) -> tuple[list[MetricsLine], list[EvalLine]]:
    path = run.attempt(attempt).metrics
    lines = [parse_line(line) for _, line in read_lines(path)]
    steps = [line for line in lines if isinstance(line, MetricsLine)]
    return steps, [line for line in lines if isinstance(line, EvalLine)]


def kill_a_rank_after(folder: Path, step: int) -> RunDir:
    """SIGKILL the trainer of rank 1 once a step is made and a checkpoint stands."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert time.monotonic() < deadline
        runs = list((folder / "runs").glob("[!.]*"))
        if runs and len(figures(RunDir(runs[0]), 1)[0]) >= step and whole_checkpoints(folder / "kept"):
            break
        time.sleep(0.02)
    run = RunDir(runs[0])
    reports = [parse_line(line) for _, line in read_lines(run.attempt(1).rank_stream(0))]
    victim = next(line for line in reports if isinstance(line, WorldReport) and line.rank == 1)
    assert send_signal(ProcessId(victim.trainer_pid, victim.trainer_pid_start), signal.SIGKILL)
    return run


def assert_tensorboard_shows(steps: list[MetricsLine], judged: list[EvalLine], folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()

    def shown(tag: str) -> list[tuple[int, float]]:
        return [(event.step, event.value) for event in found.Scalars(tag)]

    for name, tag in TAGS.items():
        expected = [(line.step, pytest.approx(getattr(line, name), rel=1e-6)) for line in steps]
        assert shown(tag) == expected, tag
    if judged:
        expected = [(line.step, pytest.approx(line.loss, rel=1e-6)) for line in judged]
        assert shown(VALIDATION_TAG) == expected


def test_a_kill_loses_no_sample_of_the_blend(root, pipeline):
    folder = root / "killed"
    words = ("launch", "recipe.yaml", "--json", "parallel.pp=2", LONG, "launch.restarts=1")
    process = start(folder, "dsforge.cli", *words)
    run = kill_a_rank_after(folder, 25)
    result = json.loads(finish(process))
    assert result["losses"] == pipeline["losses"]
    assert result["validation_losses"] == pipeline["validation_losses"]
    first, first_judged = figures(run, 1)
    second, second_judged = figures(run, 2)
    resumed_after = second[0].step - 1
    assert resumed_after >= 20
    assert len(first) < 120
    counted = [line for line in first if line.step <= resumed_after] + second
    assert [(line.first_sample, line.last_sample) for line in counted] == [
        (4 * i, 4 * i + 3) for i in range(120)
    ]
    assert {line.samples for line in first_judged + second_judged} == {16}
    assert_tensorboard_shows(first, first_judged, run.attempt(1).tensorboard)
    assert_tensorboard_shows(second, second_judged, run.attempt(2).tensorboard)


def test_another_blend_does_not_go_on_from_the_checkpoint(root, pipeline):
    del pipeline  # its checkpoints stand there
    words = ("launch", "recipe.yaml", "parallel.pp=2", "train.steps=121")
    blend = "data.train=[[0.6, ../sets/a], [0.4, ../sets/b]]"
    process = start(root / "pipeline", "dsforge.cli", *words, blend)
    _, err = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "error[DSF213]" in err
    assert "weights was 7:3, the plan says 3:2" in err
