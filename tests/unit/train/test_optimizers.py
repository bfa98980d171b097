"""SGD and Lion: by hand on one weight, and whole runs of every engine against one plain process."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from dsforge.plan.types import Optimizer, Plan
from dsforge.train import optimizers, reference
from tests.support.recipes import plan_of
from tests.support.replica_ranks import REPLICAS, Text, train

STEPS = 6
CASES: dict[str, dict[str, Any]] = {
    "sgd-ddp": {"type": "sgd", "trainer": "ddp", "zero": 0},
    "sgd-forge-zero-2": {"type": "sgd", "trainer": "forge", "zero": 2},
    "lion-fsdp": {"type": "lion", "trainer": "fsdp", "zero": 3},
    "lion-hf-zero-3": {"type": "lion", "trainer": "transformers", "zero": 3},
    "lion-forge-zero-1-cpu": {"type": "lion", "trainer": "forge", "zero": 1, "offload": {"optimizer": "cpu"}},
}
OPTIONS = {
    "sgd": {"lr": 0.5, "momentum": 0.8},
    "lion": {"lr": 1e-3, "betas": [0.9, 0.99]},
}


def options(kind: str, **more: Any) -> Optimizer:
    rest = {"min_lr": 0.0, "lr_schedule": "constant", "warmup_steps": 0, "eps": 1e-8, "grad_clip": 0.0}
    return Optimizer.model_validate({"type": kind, "weight_decay": 0.0, "betas": [0.9, 0.95], **rest, **more})


@pytest.mark.parametrize("made_by", ["trainer", "reference"])
def test_two_steps_of_lion_by_hand(made_by: str):
    weight = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    groups = [{"params": [weight], "weight_decay": 0.5}]
    chosen = options("lion", lr=0.1, betas=[0.9, 0.99])
    make = optimizers.make if made_by == "trainer" else reference.updater
    lion = make(groups, chosen)
    weight.grad = torch.tensor([0.2, -0.4, 0.0])
    lion.step()
    # Shrunk by 0.1 x 0.5, then 0.1 against the gradient's sign; the entry without a gradient only shrinks.
    assert weight.tolist() == pytest.approx([0.85, -1.8, 2.85])
    weight.grad = torch.tensor([-0.002, 0.1, 0.0])
    lion.step()
    # Momentum 0.002 and -0.004: 0.9 x 0.002 - 0.1 x 0.002 is above 0, -0.9 x 0.004 + 0.1 x 0.1 is, too.
    assert weight.tolist() == pytest.approx([0.7075, -1.81, 2.7075])


@pytest.mark.parametrize("made_by", ["trainer", "reference"])
def test_two_steps_of_sgd_by_hand(made_by: str):
    weight = torch.tensor([1.0], requires_grad=True)
    make = optimizers.make if made_by == "trainer" else reference.updater
    sgd = make([{"params": [weight], "weight_decay": 0.5}], options("sgd", lr=0.1, momentum=0.8))
    weight.grad = torch.tensor([1.0])
    sgd.step()
    assert weight.item() == pytest.approx(1.0 - 0.1 * 1.5)
    sgd.step()
    assert weight.item() == pytest.approx(0.85 - 0.1 * (0.8 * 1.5 + 1.0 + 0.5 * 0.85))


def plan_for(case: dict[str, Any]) -> Plan:
    shape = {"arch": "llama", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 80}
    chosen = {"type": case["type"], "warmup_steps": 2, "grad_clip": 0.3, "lr_schedule": "constant"}
    return plan_of(
        {
            "trainer": case["trainer"],
            "model": {**shape, "vocab": 61, "tied": False},
            "cluster": {"gpus_per_node": REPLICAS},
            "parallel": {"tp": 1, "pp": 1, "dp": REPLICAS, "zero": case["zero"]},
            "offload": case.get("offload", {}),
            "batch": {"global": 8, "micro": 2, "seq_len": 16},
            "train": {"steps": STEPS, "precision": "fp32"},
            "optimizer": chosen | OPTIONS[case["type"]],
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
    assert outcome.losses[0] - outcome.losses[-1] > 0.05
    assert told[name]["resumed"] == steps[STEPS // 2 :]
    assert told[name]["same_weights"]
