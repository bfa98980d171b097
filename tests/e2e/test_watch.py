"""What is told of ranks that make no more steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.recipes import ROOT

pytestmark = pytest.mark.e2e

RECIPE = """\
version: 1
name: stuck
model: {arch: gpt, layers: 1, hidden: 8, heads: 1, vocab: 16}
cluster: {gpus_per_node: 2, gpu: cpu}
batch: {global: 2, micro: 1, seq_len: 1}
train: {steps: 6}
trainer: external
launch: {watchdog: 4s}
external:
  {flavour: script, path: PATH, entry: stuck.py, arguments: ["{train.steps}", "{batch.micro}", 600]}
"""


def test_a_reader_that_sleeps_is_what_the_others_wait_for(tmp_path: Path):
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace("PATH", str(ROOT / "tests/external_support")))
    done = subprocess.run(
        [sys.executable, "-m", "dsforge.cli", "launch", "recipe.yaml", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    how = json.loads(done.stdout)["exit"]
    assert (done.returncode, how["kind"], how["reason"], how["rank"]) == (124, "watchdog", "hung", 1)
    first, *more = how["message"].splitlines()
    program = ROOT / "tests/external_support/stuck.py"
    assert first.startswith(
        "no progress for launch.watchdog, 4 s; the last step was 2; hung: rank 1 on host "
    )
    assert f"hangs in read ({program}:18)" in first
    assert more == [f"  rank 0 waits in all_reduce of main ({program}:33)"]
