"""Recipes of two ranks and few steps, for tests that hold their losses against one plain process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing

from dsforge.plan.types import Plan
from dsforge.train import reference
from tests.support.recipes import plan_of
from tests.support.replica_ranks import REPLICAS, Text, train

STEPS = 6
TOLERANCE = {"fp32": 1e-5, "bf16": 5e-3, "fp16": 1e-3}
SHAPE = {"arch": "llama", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 80, "vocab": 61}


def plan_for(case: Mapping[str, Any]) -> Plan:
    """Return a case's plan: `model`, `optimizer` and `train` replace some keys of these sections."""
    tp, pp = case.get("tp", 1), case.get("pp", 1)
    dp = REPLICAS // (tp * pp)
    return plan_of(
        {
            "trainer": case.get("trainer", "forge"),
            "model": {**SHAPE, "tied": False, **case.get("model", {})},
            "cluster": {"gpus_per_node": REPLICAS},
            "parallel": {"tp": tp, "pp": pp, "dp": dp, "zero": case["zero"]},
            "offload": case.get("offload", {}),
            "batch": {"global": 4 * dp, "micro": 2, "seq_len": 16},
            "train": {
                "steps": STEPS,
                "precision": "fp32",
                "checks": {"gradients_every": 1, "parameters_every": 1, "modules": True},
                **case.get("train", {}),
            },
            "optimizer": {
                "lr": 5e-3,
                "warmup_steps": 2,
                "grad_clip": 0.3,
                "lr_schedule": "constant",
                **case.get("optimizer", {}),
            },
        }
    )


def run_all(folder: Path, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Train every case on the same two ranks, one after the other, and return what rank 0 told of each."""
    plans = {name: plan_for(case) for name, case in cases.items()}
    torch.multiprocessing.spawn(train, (folder, plans), REPLICAS)
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def assert_equals_one_process(told: Mapping[str, Any], case: Mapping[str, Any]) -> None:
    """Hold a case against the reference, and what went on from its checkpoint against what did not stop."""
    plan = plan_for(case)
    outcome = reference.train(plan, Text(plan))  # type: ignore[arg-type]  # samples by id, too
    steps, tolerance = told["steps"], TOLERANCE[plan.train.precision]
    assert [step["loss"] for step in steps] == pytest.approx(outcome.losses, abs=tolerance)
    assert [step["grad_norm"] for step in steps] == pytest.approx(outcome.grad_norms, rel=50 * tolerance)
    assert outcome.clipped_steps >= 0.8 * STEPS
    assert outcome.losses[0] - outcome.losses[-1] > 0.05
    assert told["resumed"] == steps[STEPS // 2 :]
    assert told["same_weights"]
    assert not any(step["skipped"] for step in steps)
