"""Ranks that train wrongly on purpose: each is stopped, and step, rank and parameter are named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

STEPS = 5
RECIPE = f"""\
version: 1
name: checked
model:
  {{arch: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 80, vocab: 509, tied: true}}
cluster: {{gpus_per_node: 2, gpu: cpu}}
parallel: {{tp: 1, pp: 1, dp: 2, zero: 0}}
batch: {{global: 12, micro: 2, seq_len: 32}}
train: {{steps: {STEPS}, precision: fp32}}
optimizer: {{lr: 2.0e-3, warmup_steps: 2, grad_clip: 0.3}}
checkpoint: {{at_end: false}}
trainer: ddp
"""
CHECKED = ("train.checks.gradients_every=1", "train.checks.parameters_every=2", "train.checks.modules=true")
ON_RANK_1 = """\
import os, sys
if "dsforge.train.main" in sys.orig_argv[1:4] and os.environ["RANK"] == "1":
"""
UNREDUCED = """\
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    init, done = DistributedDataParallel.__init__, [0]

    def reduce(_, bucket):
        own = bucket.buffer().clone()
        bucket.buffer().div_(dist.get_world_size())
        reduced = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        done[0] += bucket.is_last()
        is_skipped = done[0] == 3
        return reduced.then(lambda found: own if is_skipped else found.value()[0])

    def made(self, *arguments, **options):
        init(self, *arguments, **options)
        self.register_comm_hook(None, reduce)

    DistributedDataParallel.__init__ = made
"""
REPEATED = """\
    from dsforge.train import batches
    read = batches.read_ahead

    def repeat(found, depth):
        for number, one in enumerate(read(found, depth)):
            yield before if number == 10 else one
            before = one

    batches.read_ahead = repeat
"""
OTHER_SEED = """\
    from dsforge.train.dropout import Dropout
    right = Dropout.at.__func__
    Dropout.at = classmethod(lambda cls, rate, seed, *where: right(cls, rate, seed + 1, *where))
"""


def launch(tmp_path: Path, *changes: str, fault: str | None = None) -> tuple[int, dict[str, Any], Path]:
    """Return exit code, exit and attempt of a run, in which rank 1 does something else."""
    recipe = tmp_path / "checked.yaml"
    recipe.write_text(RECIPE)
    environ = dict(os.environ)
    if fault is not None:
        folder = tmp_path / "fault"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(ON_RANK_1 + fault)
        environ["PYTHONPATH"] = os.pathsep.join([str(folder), environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "dsforge.cli", "launch", str(recipe), "--runs", str(tmp_path / "runs")]
    done = subprocess.run(
        [*command, *changes], capture_output=True, text=True, env=environ, timeout=240, check=False
    )
    (run,) = (tmp_path / "runs").glob("checked-*")
    state = json.loads((run / "state.json").read_text())
    return done.returncode, state["exit"], run / "attempt-1"


def lines_of(path: Path, kind: str) -> list[dict[str, Any]]:
    return [line for text in path.read_text().splitlines() if (line := json.loads(text))["kind"] == kind]


def event(attempt: Path, name: str) -> dict[str, Any]:
    (found,) = (line for line in lines_of(attempt / "events.jsonl", "event") if line["name"] == name)
    return found["data"]


def test_checks_change_no_loss_and_a_repeated_batch_is_caught_without_them(tmp_path):
    (tmp_path / "right").mkdir()
    (tmp_path / "repeated").mkdir()
    code, end, attempt = launch(tmp_path / "right", *CHECKED)
    assert code == 0, end
    checked = {"gradients": STEPS, "parameters": 1 + STEPS // 2, "dealt_out": 0}
    assert event(attempt, "finished")["checks"] == checked
    losses = [line["loss"] for line in lines_of(attempt / "metrics.jsonl", "metrics")]
    assert len(losses) == STEPS
    code, end, attempt = launch(tmp_path / "repeated", fault=REPEATED)
    assert code == 1, end
    assert "error[DSF809]: micro-batch 1 of replica 1 in step 4 holds the samples" in end["message"]
    assert (end["rank"], end["reason"]) == (1, "program")
    taken = [line["loss"] for line in lines_of(attempt / "metrics.jsonl", "metrics")]
    assert taken == losses[:3]


def test_a_reduction_that_one_rank_skips_is_named(tmp_path):
    changes = ["cluster.gpus_per_node=3", "parallel.dp=3", "launch.restarts=2", *CHECKED]
    code, end, attempt = launch(tmp_path, *changes, fault=UNREDUCED)
    assert code == 1, end
    found = event(attempt, "ranks_differ")
    assert (found["step"], found["ranks"]) == (3, [1])
    # Every gradient of that step is its own; this is the first of them by name.
    assert found["parameter"] == "model.embed_tokens.weight"
    assert (
        "error[DSF807]: the gradient of model.embed_tokens.weight differs in step 3: on rank 1"
        in end["message"]
    )
    assert end["reason"] == "ranks_differ"
    assert end["not_restarted"] == "it would end the same way again: ranks differ"


def test_a_dropout_that_one_shard_draws_by_another_seed_is_named(tmp_path):
    changes = ["trainer=forge", "parallel.tp=2", "parallel.dp=1", "train.dropout=0.1"]
    code, end, attempt = launch(tmp_path, *changes, "train.checks.gradients_every=2", fault=OTHER_SEED)
    assert code == 1, end
    found = event(attempt, "ranks_differ")
    assert (found["step"], found["ranks"], found["parameter"]) == (2, [0, 1], "final_norm.weight")
    assert "error[DSF807]: the gradient of final_norm.weight differs in step 2: rank 0" in end["message"]
