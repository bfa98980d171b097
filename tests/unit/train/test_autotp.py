"""A Hugging Face model whose layers DeepSpeed splits over two ranks: the losses of one plain process."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch.multiprocessing

from dsforge.plan.types import Plan
from dsforge.train import reference
from tests.support.recipes import plan_of
from tests.support.replica_ranks import REPLICAS, Text, train

STEPS = 6
CASES: dict[str, dict[str, Any]] = {
    "zero-0": {"arch": "llama", "zero": 0},
    "zero-1-norms-of-heads": {"arch": "qwen3", "zero": 1},
    "zero-2-biases-recomputed": {"arch": "qwen2", "zero": 2, "recompute": "full"},
}


def plan_for(case: dict[str, Any]) -> Plan:
    shape = {"arch": case["arch"], "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 80}
    return plan_of(
        {
            "trainer": "transformers",
            "model": {**shape, "vocab": 61, "tied": case["zero"] == 2},
            "cluster": {"gpus_per_node": REPLICAS},
            "parallel": {"tp": REPLICAS, "pp": 1, "dp": 1, "zero": case["zero"]},
            "batch": {"global": 4, "micro": 2, "seq_len": 16},
            "train": {"steps": STEPS, "precision": "fp32", "recompute": case.get("recompute", "none")},
            "optimizer": {"lr": 5e-3, "warmup_steps": 2, "grad_clip": 0.3, "lr_schedule": "constant"},
        }
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What rank 0 told of each case."""
    folder = tmp_path_factory.mktemp("ranks")
    plans = {name: plan_for(case) for name, case in CASES.items()}
    torch.multiprocessing.spawn(train, (folder, plans), REPLICAS)
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_one_process_and_a_checkpoint_changes_none(told: dict[str, Any], name: str):
    plan = plan_for(CASES[name])
    outcome = reference.train(plan, Text(plan))  # type: ignore[arg-type]  # samples by id, too
    steps = told[name]["steps"]
    assert [step["loss"] for step in steps] == pytest.approx(outcome.losses, abs=1e-5)
    assert [step["grad_norm"] for step in steps] == pytest.approx(outcome.grad_norms, rel=5e-4)
    assert outcome.clipped_steps >= 0.8 * STEPS
    assert told[name]["resumed"] == steps[STEPS // 2 :]
    assert told[name]["same_weights"]
