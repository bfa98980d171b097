"""The fsdp and ddp trainers on two ranks: the losses of one plain process, whatever is shared out."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch.multiprocessing

from dsforge.base.errors import DsforgeError
from dsforge.plan.types import Plan
from dsforge.train import reference
from dsforge.train.loss_scale import LossScale
from tests.support.recipes import plan_of
from tests.support.replica_ranks import (
    FAR_TOO_LARGE,
    REPLICAS,
    SMALL_SCALE,
    Text,
    begin_alone,
    end_alone,
    train,
)
from tests.support.run_cases import TOLERANCE

EXPERTS: dict[str, Any] = {"experts": {"count": 4, "active": 2, "ffn_hidden": 40}, "balance_loss": 0.1}
CASES: dict[str, dict[str, Any]] = {
    "zero-1": {"zero": 1, "arch": "llama"},
    "zero-2-gpt": {"zero": 2, "arch": "gpt", "recompute": "selective"},
    "zero-3-recomputed-offloaded": {"zero": 3, "arch": "llama", "recompute": "full 2", "offload": "cpu"},
    "ddp-recomputed": {"trainer": "ddp", "zero": 0, "arch": "gpt", "recompute": "full 2"},
    "zero-3-lion": {"zero": 3, "arch": "gpt", "optimizer": {"type": "lion", "lr": 3e-3}},
    "ddp-sgd": {"trainer": "ddp", "zero": 0, "arch": "llama", "optimizer": {"type": "sgd", "lr": 1.0}},
    "zero-3-bf16": {"zero": 3, "arch": "llama", "precision": "bf16", "recompute": "full 1"},
    "ddp-bf16": {"trainer": "ddp", "zero": 0, "arch": "llama", "precision": "bf16", "recompute": "full 1"},
    "zero-2-fp16": {"zero": 2, "arch": "llama", "precision": "fp16"},
    "zero-3-experts-recomputed": {"zero": 3, "arch": "mixtral", "recompute": "full", **EXPERTS},
    "ddp-experts": {"trainer": "ddp", "zero": 0, "arch": "qwen3", **EXPERTS, "balance_over": "model"},
    "ddp-fp16": {"trainer": "ddp", "zero": 0, "arch": "llama", "precision": "fp16"}
    | {"recompute": "selective"},
}
STEPS = 10


def plan_for(case: dict[str, Any], replicas: int = REPLICAS, zero: int | None = None) -> Plan:
    """Return the plan of a case, or its model's under another number of replicas and ZeRO stage."""
    heads = {"heads": 4, "kv_heads": 4 if case["arch"] == "gpt" else 2}
    inner = {"experts": case["experts"], "ffn_hidden": None} if "experts" in case else {"ffn_hidden": 80}
    shape = {"arch": case["arch"], "layers": 2, "hidden": 32, "vocab": 61, **heads, **inner}
    where = case.get("offload", "none")
    recompute, _, every = case.get("recompute", "none").partition(" ")
    return plan_of(
        {
            "trainer": case.get("trainer", "fsdp"),
            "model": {**shape, "tied": case["zero"] in (2, 3)},
            "cluster": {"gpus_per_node": replicas},
            "parallel": {"tp": 1, "pp": 1, "dp": replicas, "zero": case["zero"] if zero is None else zero},
            "offload": {"optimizer": where, "parameters": where},
            "batch": {"global": 8, "micro": 2, "seq_len": 16},
            "train": {
                "steps": STEPS,
                "precision": case.get("precision", "fp32"),
                "recompute": recompute,
                "recompute_every": int(every or 1),
                "balance_loss": case.get("balance_loss", 0.0),
                "balance_over": case.get("balance_over", "layer"),
                "checks": {"gradients_every": 1, "parameters_every": 1, "modules": True},
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


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What rank 0 told of each case."""
    folder = tmp_path_factory.mktemp("ranks")
    plans = {name: plan_for(case) for name, case in CASES.items()}
    begin_alone(folder, "zero-1", plan_for(CASES["zero-1"], replicas=1, zero=3))
    torch.multiprocessing.spawn(train, (folder, plans), REPLICAS)
    for name, zero in (("zero-1", 2), ("zero-3-lion", 1)):
        steps = end_alone(folder, name, plan_for(CASES[name], replicas=1, zero=zero))
        (folder / f"{name}-end.json").write_text(json.dumps(steps))
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_one_process_and_a_checkpoint_changes_none(told: dict[str, Any], name: str):
    plan = plan_for(CASES[name])
    outcome = reference.train(plan, Text(plan))  # type: ignore[arg-type]  # samples by id, too
    tolerance = TOLERANCE[plan.train.precision]
    steps = told[name]["steps"]
    assert [step["loss"] for step in steps] == pytest.approx(outcome.losses, abs=tolerance)
    assert [step["grad_norm"] for step in steps] == pytest.approx(outcome.grad_norms, rel=50 * tolerance)
    assert outcome.clipped_steps >= 0.8 * STEPS
    assert outcome.losses[0] - outcome.losses[-1] > 0.3
    assert told[name]["resumed"] == steps[STEPS // 2 :]
    assert told[name]["same_weights"]
    # Replicas of fsdp hold parts, of which there are no copies to compare.
    compared = plan.trainer == "ddp"
    assert told[name]["checked"] == {"gradients": STEPS * compared, "parameters": int(compared)}
    assert not any(step["skipped"] for step in steps)
    scale = SMALL_SCALE if plan.train.precision == "fp16" else None
    assert {step["scale"] for step in steps} == {scale}


@pytest.mark.parametrize("name", CASES)
def test_the_module_with_a_spoilt_weight_is_the_first_that_is_not_finite(told: dict[str, Any], name: str):
    lost = told[f"{name}-lost"]
    assert lost["spoilt"].endswith(".weight")
    assert lost["module"] == lost["spoilt"].removesuffix(".weight")
    assert (lost["micro"], lost["gradient"]) == (0, True)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["zero"] in (0, 3)])
def test_a_rank_holds_what_its_plan_counts(told: dict[str, Any], name: str):
    (stage,) = plan_for(CASES[name]).layout.stages
    # Rows that two ranks cannot share evenly are one's.
    assert told[name]["held"] == pytest.approx(stage.state_bytes_per_rank, rel=5e-3)
    assert stage.fp32_gradient_sum_bytes_per_rank == 0


def _losses(steps: list[dict[str, Any]]) -> list[float]:
    return [step["loss"] for step in steps]


@pytest.mark.parametrize("name", ["zero-1-alone", "zero-1-end", "zero-3-lion-end"])
def test_another_number_of_ranks_goes_on_as_if_nothing_had_happened(told: dict[str, Any], name: str):
    """One rank's half is gone on with by two, and two ranks' by one, under another ZeRO stage."""
    undisturbed = told[name.rpartition("-")[0]]["steps"][STEPS // 2 :]
    assert _losses(told[name]) == pytest.approx(_losses(undisturbed), abs=1e-6)


@pytest.mark.parametrize("name", ["zero-2-fp16", "ddp-fp16"])
def test_gradients_that_overflow_skip_the_step_and_halve_the_scale(told: dict[str, Any], name: str):
    overflowed = told[f"{name}-overflow"]
    assert overflowed["skipped"]
    assert overflowed["same_weights"]
    assert (overflowed["scale"], overflowed["next_scale"]) == (FAR_TOO_LARGE, FAR_TOO_LARGE / 2)


def test_the_scale_rises_after_calm_steps_and_ends_the_run_below_one():
    scale = LossScale()
    assert all(scale.follow(1.0) for _ in range(1999))
    assert scale.value == 2.0**16
    assert scale.follow(1.0)
    assert (scale.value, scale.calm_steps) == (2.0**17, 0)
    assert not any(scale.follow(math.inf) for _ in range(17))
    assert scale.value == 1.0
    with pytest.raises(DsforgeError) as caught:
        scale.follow(math.nan)
    assert caught.value.code == "DSF781"
