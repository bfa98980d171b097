"""The megatron-core trainer on two ranks: the losses of one plain process, also after a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing

from dsforge.plan.types import Plan
from dsforge.train import reference, reference_model
from tests.support.core_ranks import train
from tests.support.recipes import plan_of
from tests.support.replica_ranks import SMALL_SCALE, Text
from tests.support.run_cases import TOLERANCE

STEPS = 6


def trained(folder: Path, plan: Plan, compared: int = STEPS) -> tuple[dict[str, Any], reference.Outcome]:
    """Return what the ranks tell, and what one process computes, having seen that they agree."""
    torch.multiprocessing.spawn(train, (folder, plan), nprocs=plan.layout.world_size)
    told = json.loads((folder / "told.json").read_text("utf-8"))
    outcome = reference.train(plan, Text(plan))  # type: ignore[arg-type]  # samples by id, too
    losses, norms, _ = zip(*told["steps"], strict=True)
    tolerance = TOLERANCE[plan.train.precision]
    assert outcome.clipped_steps == STEPS
    assert losses == pytest.approx(outcome.losses, abs=tolerance)
    assert norms == pytest.approx(outcome.grad_norms, rel=10 * tolerance)
    # What ranks hold alike, a tied table's gradient on both of its stages among it, they do.
    assert told["checked"] == {"gradients": compared, "parameters": 1}
    assert told["again"] == told["steps"][STEPS // 2 :]
    return told, outcome


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
    told, outcome = trained(tmp_path, plan)
    # A validation has no dropout, and leaves the last step's own loss alone.
    text = Text(plan)
    samples = torch.stack([torch.from_numpy(text.sample(number)) for number in range(8)])
    scores = reference_model.logits(plan.model, outcome.weights, samples[:, :-1]).flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(scores, samples[:, 1:].flatten()).item()
    assert told["validation"][0] == pytest.approx(expected, abs=1e-5)
    own = json.loads((tmp_path / "own.json").read_text("utf-8"))
    assert own["before"] == own["after"]
    assert sum(own["before"]) / 4 == pytest.approx(told["steps"][-1][0], abs=1e-6)


def test_parts_of_sequences_train_and_go_on_as_one_process_does(tmp_path):
    """Two replicas, learned positions, a tied table, dropout alike, states shared out over all four."""
    plan = plan_of(
        {
            "trainer": "megatron-core",
            "model": {"arch": "gpt", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 4, "ffn_hidden": 80}
            | {"vocab": 61, "tied": True},
            "cluster": {"gpus_per_node": 4},
            "parallel": {"tp": 1, "pp": 1, "cp": 2, "dp": 2, "zero": 1},
            "batch": {"global": 8, "micro": 2, "seq_len": 16},
            "train": {"steps": STEPS, "recompute": "selective", "dropout": 0.1, "attention_dropout": 0.1}
            | {"checks": {"gradients_every": 1, "parameters_every": 1, "modules": True}},
            "optimizer": {"lr": 2.0e-3, "warmup_steps": 2, "grad_clip": 0.3},
        }
    )
    # Each gradient is summed for the one rank that keeps its states: there is no second to compare.
    trained(tmp_path, plan, compared=0)


def test_experts_of_two_ranks_train_as_those_of_one_process_do(tmp_path):
    """Split sequences, a dense layer, a balance loss that counts, blocks of recomputed layers, dropout."""
    experts = {"count": 4, "active": 2, "ffn_hidden": 48, "dense_layers": [1]}
    plan = plan_of(
        {
            "trainer": "megatron-core",
            "model": {"arch": "qwen3", "layers": 3, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 80}
            | {"vocab": 61, "experts": experts},
            "cluster": {"gpus_per_node": 2},
            "parallel": {"tp": 2, "pp": 1, "dp": 1, "ep": 2, "zero": 1, "sequence_parallel": True},
            "batch": {"global": 8, "micro": 2, "seq_len": 16},
            "train": {"steps": STEPS, "recompute": "full", "recompute_every": 2, "dropout": 0.1}
            | {"balance_loss": 0.1, "checks": {"gradients_every": 1, "parameters_every": 1, "modules": True}},
            "optimizer": {"lr": 2.0e-3, "warmup_steps": 2, "grad_clip": 0.3},
        }
    )
    trained(tmp_path, plan)


def test_fp16_has_one_scale_for_all_optimizers_and_goes_on_with_it(tmp_path):
    """Experts have an optimizer of their own, and here only one rank's overflow."""
    plan = plan_of(
        {
            "trainer": "megatron-core",
            "model": {"arch": "mixtral", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2}
            | {"ffn_hidden": None, "vocab": 61, "experts": {"count": 4, "active": 2, "ffn_hidden": 48}},
            "cluster": {"gpus_per_node": 2},
            "parallel": {"tp": 1, "pp": 1, "dp": 2, "ep": 2, "zero": 1},
            "batch": {"global": 8, "micro": 2, "seq_len": 16},
            "train": {"steps": STEPS, "precision": "fp16", "balance_loss": 0.1}
            | {"checks": {"gradients_every": 1, "parameters_every": 1, "modules": True}},
            "optimizer": {"lr": 2.0e-3, "warmup_steps": 2, "grad_clip": 0.3},
        }
    )
    told, _ = trained(tmp_path, plan, compared=0)
    half = STEPS // 2
    assert [scale for _, _, scale in told["steps"]] == [2.0**16] * half + [SMALL_SCALE] * half
    overflow = told["overflow"]
    assert overflow["skipped"]
    assert overflow["same_weights"]
    assert overflow["scales"] == [SMALL_SCALE, SMALL_SCALE / 2]
    for after, without in zip(overflow["after"], overflow["without"], strict=True):
        assert after == pytest.approx(without, rel=1e-3)
