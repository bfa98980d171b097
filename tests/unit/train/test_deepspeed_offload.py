"""DeepSpeed's trainers on two ranks, states on the host or on a disk: the losses of one plain process."""

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
DISK = {"optimizer": "nvme", "parameters": "nvme", "path": "disk"}
CASES: dict[str, dict[str, Any]] = {
    "cpu-zero-1": {"zero": 1, "offload": {"optimizer": "cpu"}},
    "cpu-zero-2": {"zero": 2, "offload": {"optimizer": "cpu"}},
    "cpu-cpu-zero-3": {"zero": 3, "offload": {"optimizer": "cpu", "parameters": "cpu"}},
    "nvme-zero-3": {"zero": 3, "offload": {"optimizer": "nvme", "parameters": "nvme", "path": "disk"}},
    "nvme-cpu-zero-3": {"zero": 3, "offload": {"optimizer": "nvme", "parameters": "cpu", "path": "disk"}},
    "nvme-hf-zero-3": {
        "trainer": "transformers",
        "zero": 3,
        "offload": {"optimizer": "nvme", "parameters": "nvme", "path": "disk"},
    },
}


def plan_for(case: dict[str, Any]) -> Plan:
    # Half of an MLP's first weight, and of all decaying weights, is more than the megabyte that is swapped.
    shape = {"arch": "llama", "layers": 2, "hidden": 128, "heads": 4, "kv_heads": 2, "ffn_hidden": 2048}
    return plan_of(
        {
            "trainer": case.get("trainer", "forge"),
            "model": {**shape, "vocab": 61, "tied": False},
            "cluster": {"gpus_per_node": REPLICAS},
            "parallel": {"tp": 1, "pp": 1, "dp": REPLICAS, "zero": case["zero"]},
            "offload": case["offload"],
            "batch": {"global": 8, "micro": 2, "seq_len": 16},
            "train": {"steps": STEPS, "precision": case.get("precision", "fp32")},
            "optimizer": {"lr": 3e-3, "warmup_steps": 2, "grad_clip": 0.3, "lr_schedule": "constant"},
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
