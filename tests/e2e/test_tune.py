"""Layouts are really launched, measured, and known to the next plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsforge.records.calibration import parse_calibration

pytestmark = pytest.mark.e2e

RECIPE = """\
version: 1
model: {arch: llama, layers: 3, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 176, vocab: 512}
cluster: {gpus_per_node: 2, gpu: cpu}
parallel: {tp: auto, pp: auto}
batch: {global: 8, micro: 2, seq_len: 32}
train: {steps: 200, precision: fp32, eval_every: 5}
"""


def _dsforge(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "dsforge.cli", *words, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=dict(os.environ),
        timeout=200,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_two_layouts_are_measured_and_the_plan_of_one_tells_it(tmp_path: Path):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    code, told = _dsforge(tmp_path, "tune", "recipe.yaml", "--top", "2", "--steps", "5", "--runs", "runs")
    assert code == 0, told
    assert told["left"] == []
    degrees = [(one["values"]["parallel.dp"], one["values"]["parallel.pp"]) for one in told["trials"]]
    assert sorted(degrees) == [(1, 2), (2, 1)]
    assert {one["measured"]["steps"] for one in told["trials"]} == {3}
    assert told["best"] == told["trials"][0]["values"]
    saved = parse_calibration(json.loads((tmp_path / "recipe.calibration.json").read_text()))
    for trial in saved.trials:
        run = tmp_path / "runs" / str(trial.run_id)
        steps = [json.loads(line) for line in (run / "attempt-1" / "metrics.jsonl").read_text().splitlines()]
        assert trial.measured is not None
        assert trial.measured.step_seconds == sorted(line["step_seconds"] for line in steps[2:])[1]
        assert trial.measured.memory_bytes == max(line["memory_bytes"] for line in steps)
        assert not list((run / "checkpoints").glob("step-*"))
    words = [f"{key}={told['best'][key]}" for key in ("parallel.tp", "parallel.pp", "parallel.zero")]
    _, plan = _dsforge(tmp_path, "plan", "recipe.yaml", *words, "--calibration", "recipe.calibration.json")
    assert plan["calibration"]["measured"] == told["trials"][0]["measured"]
    assert plan["calibration"]["factor"] is None
