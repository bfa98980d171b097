import math

import pytest
import torch

from dsforge.train import initial, reference, slicing
from dsforge.train.parameters import model_parameters

GPT = {
    "model__arch": "gpt",
    "model__norm": "layernorm",
    "model__activation": "gelu",
    "model__position": "learned",
    "model__linear_bias": True,
    "model__qkv_bias": True,
    "model__tied": True,
    "model__kv_heads": 4,
}


QWEN2 = {"model__arch": "qwen2", "model__qkv_bias": True}
QWEN3 = {"model__arch": "qwen3", "model__qk_norm": True}
EXPERTS = {"model__experts": {"count": 3, "active": 2, "ffn_hidden": 20, "dense_layers": [1]}}


@pytest.mark.parametrize(
    "shape", [{}, GPT, {**GPT, "model__tied": False}, {"model__tied": True}, QWEN2, QWEN3, EXPERTS]
)
def test_trainer_and_reference_know_the_same_parameters_and_first_values(make_plan, shape):
    plan = make_plan(**shape)
    specs = {spec.name: spec for spec in model_parameters(plan.model)}
    assert {name: spec.shape for name, spec in specs.items()} == dict(reference.shapes(plan.model))
    theirs = reference.first_weights(plan.model, seed=7)
    for name, spec in specs.items():
        assert torch.equal(initial.draw(spec, plan.model, seed=7), theirs[name]), name


def test_experts_have_names_of_their_own_and_layers_without_them_do_not(make_plan):
    specs = {spec.name: spec for spec in model_parameters(make_plan(**EXPERTS).model)}
    assert specs["layers.0.mlp.router.weight"].shape == (3, 16)
    assert specs["layers.0.mlp.router.weight"].partition_dim is None
    assert specs["layers.0.mlp.experts.2.linear_fc1.weight"].shape == (40, 16)
    assert specs["layers.0.mlp.experts.2.linear_fc1.weight"].partition_stride == 2
    assert specs["layers.0.mlp.experts.2.linear_fc2.weight"].shape == (16, 20)
    assert specs["layers.1.mlp.linear_fc1.weight"].shape == (48, 16)
    assert not {"layers.0.mlp.linear_fc1.weight", "layers.1.mlp.router.weight"} & set(specs)


def test_the_number_of_parameters_of_gpt2_small(make_plan):
    model = make_plan(**GPT).model.model_copy(
        update={
            "layers": 12,
            "hidden": 768,
            "heads": 12,
            "kv_heads": 12,
            "head_dim": 64,
            "ffn_hidden": 3072,
            "vocab": 50257,
            "max_positions": 1024,
        }
    )
    # Radford et al. 2019; the released checkpoint holds 124,439,808.
    assert sum(math.prod(spec.shape) for spec in model_parameters(model)) == 124_439_808


def test_deviations_of_the_first_weights(make_plan):
    model = make_plan().model.model_copy(update={"hidden": 256, "heads": 64, "ffn_hidden": 512, "layers": 8})
    specs = {spec.name: spec for spec in model_parameters(model)}
    inner = initial.draw(specs["layers.0.mlp.linear_fc1.weight"], model, 1)
    outer = initial.draw(specs["layers.0.mlp.linear_fc2.weight"], model, 1)
    assert inner.std().item() == pytest.approx(0.02, rel=0.01)
    assert outer.std().item() == pytest.approx(0.02 / 4, rel=0.01)  # sqrt(2 x 8) = 4


def test_every_name_draws_its_own_numbers_and_every_seed_too(make_plan):
    model = make_plan().model
    specs = {spec.name: spec for spec in model_parameters(model)}
    first = initial.draw(specs["layers.0.mlp.linear_fc2.weight"], model, 1)
    assert not torch.equal(first, initial.draw(specs["layers.1.mlp.linear_fc2.weight"], model, 1))
    assert not torch.equal(first, initial.draw(specs["layers.0.mlp.linear_fc2.weight"], model, 2))


def test_shards_of_two_ranks_join_to_the_drawn_tensor(make_plan):
    plan = make_plan(layout__tp=2, model__padded_vocab=256)
    specs = {spec.name: spec for spec in model_parameters(plan.model)}
    for name in (
        "head.weight",
        "layers.1.mlp.linear_fc1.weight",
        "layers.0.self_attention.linear_proj.weight",
    ):
        spec = specs[name]
        shape = list(spec.shape)
        if spec.padded_rows:
            shape[0] = spec.padded_rows
        shape[spec.partition_dim] //= 2
        shards = [torch.nn.Parameter(torch.full(shape, torch.nan)) for _ in range(2)]
        for number, shard in enumerate(shards):
            initial.fill({name: shard}, specs, plan, number)
        full = slicing.join([s.detach() for s in shards], spec.partition_dim, spec.partition_stride)
        assert torch.equal(full[: spec.shape[0]], initial.draw(spec, plan.model, plan.train.seed))
        assert not full[spec.shape[0] :].any()
