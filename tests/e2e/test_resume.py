"""Runs that are killed, damaged or diverge: what is resumed is what was saved, or nothing is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dsforge.base.processes import ProcessId, send_signal
from dsforge.records.checkpoint import whole_checkpoints
from dsforge.records.run_dir import RunDir
from dsforge.records.streams import WorldReport, parse_line, read_lines

pytestmark = pytest.mark.e2e

RECIPE = """\
version: 1
name: resumed
model: {arch: gpt, layers: 2, hidden: 32, heads: 2, vocab: 300}
cluster: {gpus_per_node: 2, gpu: cpu}
parallel: {pp: 2}
batch: {global: 4, micro: 1, seq_len: 16}
train: {steps: 120, precision: fp32, dropout: 0.1, attention_dropout: 0.1}
optimizer: {lr_schedule: constant, warmup_steps: 0}
checkpoint: {dir: kept, every_steps: 20, keep: 2}
"""
PATIENCE_SECONDS = 120.0


def start(folder: Path, *changes: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    return subprocess.Popen(
        [sys.executable, "-m", "dsforge.cli", "launch", "recipe.yaml", "--json", *changes],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def launch(folder: Path, *changes: str) -> tuple[int, dict[str, Any], str]:
    process = start(folder, *changes)
    out, err = process.communicate(timeout=600)
    return process.returncode, json.loads(out), err


def metrics(run: RunDir, attempt: int) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    path = run.attempt(attempt).metrics
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line, parse_constant=refuse) for line in lines]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """The folder of a run of 120 steps that kept those of 100 and 120, and its losses."""
    folder = tmp_path_factory.mktemp("undisturbed")
    code, result, err = launch(folder)
    assert code == 0, err
    assert [step for step, _ in whole_checkpoints(folder / "kept")] == [100, 120]
    assert len(result["losses"]) == 120
    return folder, result["losses"]


def the_run(folder: Path) -> RunDir:
    (path,) = (folder / "runs").glob("[!.]*")
    return RunDir(path)


def kill_a_rank_after(folder: Path, step: int) -> None:
    """SIGKILL the trainer of rank 1 once a step is made and a checkpoint stands."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert time.monotonic() < deadline
        if list((folder / "runs").glob("[!.]*")):
            run = the_run(folder)
            done = len(metrics(run, 1))
            if done >= step and whole_checkpoints(folder / "kept"):
                break
        time.sleep(0.02)
    reports = [parse_line(line) for _, line in read_lines(run.attempt(1).rank_stream(0))]
    victim = next(line for line in reports if isinstance(line, WorldReport) and line.rank == 1)
    assert send_signal(ProcessId(victim.trainer_pid, victim.trainer_pid_start), signal.SIGKILL)


@pytest.mark.parametrize("resume", ["auto", "never"])
def test_a_killed_rank_costs_steps_but_neither_losses_nor_samples(undisturbed, tmp_path, resume):
    _, losses = undisturbed
    folder = tmp_path / "killed"
    process = start(folder, "launch.restarts=1", f"checkpoint.resume={resume}")
    kill_a_rank_after(folder, 25)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert json.loads(out)["losses"] == losses
    run = the_run(folder)
    first, second = metrics(run, 1), metrics(run, 2)
    resumed_after = second[0]["step"] - 1
    assert resumed_after >= 20
    assert resumed_after % 20 == 0
    assert len(first) < 120
    assert [line["loss"] for line in first] == losses[: len(first)]
    counted = [line for line in first if line["step"] <= resumed_after] + second
    spans = [(line["first_sample"], line["last_sample"]) for line in counted]
    assert spans == [(4 * i, 4 * i + 3) for i in range(120)]
    assert [path.name for path in (folder / "kept").glob("*.tmp-*")] == []


def test_a_damaged_newest_checkpoint_is_refused_by_name(undisturbed, tmp_path):
    source, _ = undisturbed
    shutil.copytree(source / "kept", tmp_path / "kept")
    damaged = sorted((tmp_path / "kept" / "step-00000120").rglob("layer_*.pt"))[2]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    before = sorted(path.name for path in (tmp_path / "kept").iterdir())
    code, result, err = launch(tmp_path, "train.steps=140")
    assert code == 4
    assert "error[DSF334]" in err
    assert str(damaged) in err
    assert "other bytes than were written" in err
    assert result["losses"] == []
    assert metrics(the_run(tmp_path), 1) == []
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == before


def test_a_resumed_run_obeys_the_recipe_not_the_checkpoint(undisturbed, tmp_path):
    source, losses = undisturbed
    found = {}
    for change in ("optimizer.weight_decay=100", "optimizer.grad_clip=1e-6", "optimizer.betas=[0.1, 0.2]"):
        folder = tmp_path / change.partition("=")[0]
        shutil.copytree(source / "kept" / "step-00000100", folder / "kept" / "step-00000100")
        code, result, err = launch(folder, change, "train.steps=104")
        assert code == 0, err
        found[change] = result["losses"]
        assert found[change][0] == losses[100]  # the weights are the checkpoint's
        assert found[change] != losses[100:104]
    assert len({tuple(figures) for figures in found.values()}) == 3


def test_a_run_that_diverges_ends_with_the_step_and_keeps_finite_checkpoints(tmp_path):
    import torch

    # Every step multiplies the weights by 1 - 100 x 100.
    wild = ("optimizer.lr=100", "optimizer.weight_decay=100")
    code, _, err = launch(tmp_path, *wild, "checkpoint.every_steps=1", "checkpoint.keep=0")
    assert code == 1
    told = re.search(r"error\[DSF350\]: the (?:loss|gradient norm) is (?:nan|inf).* at step (\d+)", err)
    assert told is not None, err
    last = int(told[1]) - 1
    lines = metrics(the_run(tmp_path), 1)
    assert [line["step"] for line in lines] == list(range(1, last + 1))
    assert None not in [line[key] for line in lines for key in ("loss", "grad_norm")]
    saved = whole_checkpoints(tmp_path / "kept")
    assert [step for step, _ in saved] == list(range(1, last + 1))
    folder = saved[-1][1]
    layers = [torch.load(path, weights_only=True) for path in folder.rglob("layer_*.pt")]
    weights = [value for layer in layers for value in layer.values() if isinstance(value, torch.Tensor)]
    assert len(weights) > 10
    assert all(weight.isfinite().all() for weight in weights)
