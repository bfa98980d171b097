"""From text files to a trained, checkpointed, resumed run, by the commands a user types."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsforge.records.checkpoint import whole_checkpoints

pytestmark = pytest.mark.e2e

RECIPE = """\
version: 1
name: own data
model: {arch: gpt, layers: 2, hidden: 32, heads: 2, vocab: 300}
cluster: {gpus_per_node: 2, gpu: cpu}
parallel: {tp: 2}
batch: {global: 4, micro: 2, seq_len: 32}
train: {steps: 6, precision: fp32}
data: {train: [[1.0, text/corpus]], tokenizer: text/corpus.tokenizer.json, workers: 1}
checkpoint: {dir: kept, every_steps: 2, keep: 2}
"""

LAUNCH = ("launch", "recipe.yaml", "--json", "optimizer.lr_schedule=constant")


def dsforge(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dsforge.cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def test_text_to_checkpoint_to_resume(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    source = Path(json.__file__).parent
    early = dsforge(tmp_path, "launch", "recipe.yaml")
    assert early.returncode == 3
    assert "error[DSF045]" in early.stderr
    assert "recipe.yaml:8:16" in early.stderr

    prepared = dsforge(tmp_path, "data", "prep", str(source), "-o", "text/corpus", "--vocab", "300", "--json")
    assert prepared.returncode == 0, prepared.stderr
    assert json.loads(prepared.stdout)["documents"] == len(list(source.rglob("*.py")))

    too_small = dsforge(tmp_path, "launch", "recipe.yaml", "model.vocab=280")
    assert too_small.returncode == 3
    assert "error[DSF046]" in too_small.stderr

    first = dsforge(
        tmp_path, "launch", "recipe.yaml", "train.steps=4", "optimizer.lr_schedule=constant", "--json"
    )
    assert first.returncode == 0, first.stderr
    assert [step for step, _ in whole_checkpoints(tmp_path / "kept")] == [2, 4]

    rest = dsforge(tmp_path, *LAUNCH)
    assert rest.returncode == 0, rest.stderr
    assert [step for step, _ in whole_checkpoints(tmp_path / "kept")] == [4, 6]
    run = Path(json.loads(rest.stdout)["run"])
    lines = [json.loads(line) for line in (run / "attempt-1" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["first_sample"], line["last_sample"]) for line in lines] == [
        (5, 16, 19),
        (6, 20, 23),
    ]

    whole = dsforge(tmp_path, *LAUNCH, "checkpoint.dir=other")
    assert whole.returncode == 0, whole.stderr
    resumed = json.loads(first.stdout)["losses"] + json.loads(rest.stdout)["losses"]
    assert resumed == json.loads(whole.stdout)["losses"]
