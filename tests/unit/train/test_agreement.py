from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.plan.resolve import make_plan as plan_recipe
from dsforge.recipe.load import load_recipe
from dsforge.render.deepspeed_config import deepspeed_config
from dsforge.train.agreement import check_agrees, planned_values
from tests.support.recipes import CONFIGURED, plan_of

PATH = Path("ds_config.json")


@pytest.mark.parametrize("path", CONFIGURED, ids=lambda path: path.stem)
def test_what_is_rendered_agrees(path):
    plan = plan_recipe(load_recipe(path))
    check_agrees(deepspeed_config(plan), plan, PATH)


def changed(key, value):
    config = deepspeed_config(plan_of({"train": {"precision": "bf16"}}))
    node = config
    *parents, last = key.split(".")
    for part in parents:
        node = node.setdefault(part, {})
    if value is None:
        node.pop(last)
    else:
        node[last] = value
    return config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train_batch_size", 64),
        ("train_micro_batch_size_per_gpu", None),
        ("gradient_accumulation_steps", 2),
        ("gradient_clipping", 0.5),
        ("zero_optimization.stage", 2),
        ("zero_optimization.stage", True),
        ("bf16.enabled", False),
        ("bf16.enabled", None),
        ("fp16.enabled", True),
        ("data_types.grad_accum_dtype", "bf16"),
        ("optimizer.type", "Lamb"),
        ("optimizer.params.lr", 1e-2),
        ("optimizer.params.betas", [0.9, 0.999]),
        ("optimizer.params.eps", 1e-5),
        ("optimizer.params.weight_decay", 0.5),
        ("scheduler", {"type": "OneCycle"}),
    ],
)
def test_every_value_that_differs_is_named(key, value):
    plan = plan_of({"train": {"precision": "bf16"}})
    with pytest.raises(DsforgeError) as caught:
        check_agrees(changed(key, value), plan, PATH)
    assert caught.value.code == "DSF305"
    assert caught.value.message.startswith(f"{key} is ")
    assert repr(planned_values(plan)[key]) in caught.value.message


@pytest.mark.parametrize("key", ["pipe_partitioned", "grad_partitioned"])
def test_stages_send_shards_that_differ_whole(key):
    plan = plan_of({"parallel": {"sequence_parallel": True}})
    config = deepspeed_config(plan)
    check_agrees(config, plan, PATH)
    for partitioned in ({}, {key: True}):
        config["pipeline"] = {"pipe_partitioned": False, "grad_partitioned": False} | partitioned
        if not partitioned:
            del config["pipeline"][key]
        with pytest.raises(DsforgeError, match=f"pipeline.{key} is (None|True), the plan says False"):
            check_agrees(config, plan, PATH)


def test_keys_that_the_plan_says_nothing_of_are_the_users():
    plan = plan_of()
    check_agrees({**deepspeed_config(plan), "wall_clock_breakdown": True}, plan, PATH)


@pytest.mark.parametrize("config", [[], None, {"optimizer": 3}])
def test_another_shape_is_refused(config):
    with pytest.raises(DsforgeError, match="is None, the plan says"):
        check_agrees(config, plan_of(), PATH)
