"""The megatron-core trainer on two stages: the losses of one plain process, also after a resume."""

from __future__ import annotations

import json

import pytest
import torch.multiprocessing

from dsforge.train import reference
from tests.support.core_ranks import train
from tests.support.recipes import plan_of
from tests.support.replica_ranks import Text

STEPS = 6


def test_interleaved_stages_train_and_go_on_as_one_process_does(tmp_path):
    plan = plan_of(
        {
            "trainer": "megatron-core",
            "model": {"arch": "gpt", "layers": 4, "hidden": 32, "heads": 4, "kv_heads": 4, "ffn_hidden": 80}
            | {"vocab": 61, "tied": True},
            "cluster": {"gpus_per_node": 2},
            "parallel": {"tp": 1, "pp": 2, "dp": 1, "vp": 2, "zero": 1}
            | {"schedule": "interleaved", "partition": "uniform"},
            "batch": {"global": 8, "micro": 2, "seq_len": 16},
            "train": {"steps": STEPS, "recompute": "full", "dropout": 0.1, "attention_dropout": 0.1}
            | {"checks": {"gradients_every": 1, "parameters_every": 1, "modules": True}},
            "optimizer": {"lr": 2.0e-3, "warmup_steps": 2, "grad_clip": 0.3},
        }
    )
    torch.multiprocessing.spawn(train, (tmp_path, plan), nprocs=2)
    told = json.loads((tmp_path / "told.json").read_text("utf-8"))
    text = Text(plan)
    outcome = reference.train(plan, text)
    losses, norms = zip(*told["steps"], strict=True)
    assert outcome.clipped_steps == STEPS
    assert losses == pytest.approx(outcome.losses, abs=1e-5)
    assert norms == pytest.approx(outcome.grad_norms, rel=1e-4)
    # The tied table is the same on the first and the last stage, its gradient too.
    assert told["checked"] == {"gradients": STEPS, "parameters": 1}
    assert told["again"] == told["steps"][STEPS // 2 :]
    # A validation has no dropout, and leaves the last step's own loss alone.
    samples = torch.stack([torch.from_numpy(text.sample(number)) for number in range(8)])
    scores = reference.logits(plan.model, outcome.weights, samples[:, :-1]).flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(scores, samples[:, 1:].flatten()).item()
    assert told["validation"][0] == pytest.approx(expected, abs=1e-5)
    own = json.loads((tmp_path / "own.json").read_text("utf-8"))
    assert own["before"] == own["after"]
    assert sum(own["before"]) / 4 == pytest.approx(losses[-1], abs=1e-6)
