"""Experts: the reference against Hugging Face's own Mixtral and Qwen3-MoE, and what balances them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from dsforge.plan.types import Plan
from dsforge.train import reference_model
from dsforge.train.balance import Balance, balance_of
from dsforge.train.hf_names import from_hugging_face, parts, to_hugging_face
from dsforge.train.hugging_face import WithLoss, make_model
from tests.support.recipes import plan_of

COEFFICIENT = 0.7
TINY: dict[str, Any] = {"layers": 3, "hidden": 48, "heads": 4, "kv_heads": 2, "head_dim": 20, "vocab": 71}
SHAPES: dict[str, dict[str, Any]] = {
    "mixtral": {"arch": "mixtral", "experts": {"count": 5, "active": 2, "ffn_hidden": 24}},
    "qwen3_moe": {"arch": "qwen3", "experts": {"count": 6, "active": 3, "ffn_hidden": 24}},
    "qwen3_moe, some layers dense, shares not normalised": {
        "arch": "qwen3",
        "ffn_hidden": 28,
        "experts": {"count": 6, "active": 3, "ffn_hidden": 24, "normalised": False, "dense_layers": [1]},
    },
}
SAMPLES = torch.arange(3 * 33).view(3, 33) * 11 % 71


def plan_for(shape: str, over: str = "model") -> Plan:
    return plan_of(
        {
            "trainer": "transformers",
            "model": {"ffn_hidden": None, **TINY, **SHAPES[shape]},
            "cluster": {"gpus_per_node": 1},
            "parallel": {"tp": 1, "pp": 1, "dp": 1, "zero": 0},
            "train": {"balance_loss": COEFFICIENT, "balance_over": over},
        }
    )


def restless(plan: Plan) -> dict[str, torch.Tensor]:
    """Return weights far from the first ones, so that routers prefer some experts."""
    generator = torch.Generator().manual_seed(3)
    return {
        name: weight + 0.1 * torch.empty_like(weight).normal_(generator=generator)
        for name, weight in reference_model.first_weights(plan.model, 1).items()
    }


def with_weights(model: torch.nn.Module, plan: Plan, weights: dict[str, torch.Tensor]) -> Any:
    named = to_hugging_face((weights[name], some) for name, some in parts(plan.model).items())
    missing, unknown = model.load_state_dict(named, strict=False)
    assert (missing, unknown) == ([], [])
    return model.train()


def reference_gradients(plan: Plan, weights: dict[str, torch.Tensor]) -> tuple[float, dict[str, Any]]:
    """Return the loss of tokens and the gradients of it and the balance loss."""
    leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    scores, routed = reference_model.forward(plan.model, leaves, SAMPLES[:, :-1])
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), SAMPLES[:, 1:].flatten())
    (loss + COEFFICIENT * reference_model.imbalance(plan, routed)).backward()
    return loss.item(), {name: leaf.grad for name, leaf in leaves.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_loss_and_gradients_are_those_of_hugging_faces_own_model(shape: str):
    """A model made from their configuration alone, with their own balance loss over the same tokens."""
    plan = plan_for(shape)
    weights = restless(plan)
    config = AutoConfig.for_model(**plan.model.hf_config)
    assert config.model_type == shape.partition(",")[0]
    theirs = with_weights(AutoModelForCausalLM.from_config(config), plan, weights)
    out = theirs(input_ids=SAMPLES[:, :-1], output_router_logits=True)
    loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), SAMPLES[:, 1:].flatten())
    (loss + COEFFICIENT * out.aux_loss).backward()
    gradients = from_hugging_face({name: one.grad for name, one in theirs.named_parameters()}, plan.model)
    ours, expected = reference_gradients(plan, weights)
    assert ours == pytest.approx(loss.item(), abs=1e-6)
    # Their own loss shifts the labels itself, and has no balance loss unless it is asked for.
    assert theirs(input_ids=SAMPLES, labels=SAMPLES).loss.item() == pytest.approx(ours, abs=1e-6)
    assert set(expected) == set(gradients)
    for name, gradient in expected.items():
        assert torch.allclose(gradients[name], gradient, rtol=0, atol=1e-6), name


@pytest.mark.parametrize("over", ["layer", "model"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_trainers_module_has_the_references_loss_and_gradients(shape: str, over: str):
    plan = plan_for(shape, over)
    weights = restless(plan)
    model = with_weights(make_model(plan, torch.device("cpu"), {}), plan, weights)
    batch = (SAMPLES[:, :-1], torch.arange(3)), SAMPLES[:, 1:]
    loss = WithLoss(model, balance_of(plan))(*batch)
    loss.backward()
    gradients = from_hugging_face({name: one.grad for name, one in model.named_parameters()}, plan.model)
    ours, expected = reference_gradients(plan, weights)
    assert loss.item() == pytest.approx(ours, abs=1e-6)
    router = "layers.2.mlp.router.weight"
    assert expected[router].norm() > 1e-3
    for name, gradient in expected.items():
        assert torch.allclose(gradients[name], gradient, rtol=0, atol=1e-6), name
    # Without the balance loss the gradient is another one, the loss the same.
    model.zero_grad()
    plain = WithLoss(model)(*batch)
    plain.backward()
    assert plain.item() == loss.item()
    assert (model.model.layers[2].mlp.gate.weight.grad - expected[router]).abs().max() > 1e-4


def test_the_balance_loss_by_hand():
    """Two layers, three experts, two tokens that go to one each: chances 1/2, 1/3, 1/6 of logs of these."""
    chances = torch.tensor([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0]])
    routed = [chances.log(), torch.zeros(2, 3) + torch.tensor([0.0, 0.0, 1e-3])]
    first = 3 * (1.0 * 0.5)
    each = Balance(1.0, active=1, together=False).of(routed)
    assert each.item() == pytest.approx(first + 3 * (1.0 / 3), abs=1e-3)
    # Experts 0 and 2 take half of the choices; their mean chances are 5/12 and 7/24.
    joined = Balance(1.0, active=1, together=True).of(routed)
    assert joined.item() == pytest.approx(3 * (0.5 * 5 / 12 + 0.5 * 7 / 24), abs=1e-3)


def test_a_token_is_worked_on_by_its_best_experts_alone(make_plan):
    """Scores 3, 2 and 1: the third expert is not asked, and its weights change nothing."""
    model = make_plan(model__experts={"count": 3, "active": 2, "ffn_hidden": 20}).model
    weights = reference_model.first_weights(model, 5)
    value = torch.ones(1, 1, 16)
    weights["layers.0.mlp.router.weight"] = torch.tensor([3.0, 2.0, 1.0])[:, None].expand(3, 16) / 16
    mixed, went = reference_model.mix(model, weights, 0, value)
    assert went.scores.flatten().tolist() == pytest.approx([3.0, 2.0, 1.0])
    parts_ = [
        reference_model.feed_forward(model, weights, f"layers.0.mlp.experts.{i}", value) for i in range(3)
    ]
    shares = torch.tensor([3.0, 2.0]).softmax(-1)
    assert torch.allclose(mixed, shares[0] * parts_[0] + shares[1] * parts_[1], atol=1e-7)
    assert parts_[2].abs().max() > 1e-4
