"""The buffers that a plan gives to parameters on a disk hold every parameter that a rank has."""

from __future__ import annotations

import pytest
import torch

from dsforge.plan.types import Plan
from dsforge.render.deepspeed_config import deepspeed_config
from dsforge.train.hugging_face import bare_model
from dsforge.train.parameters import model_parameters
from tests.support.recipes import plan_of

ON_DISK = {"optimizer": "nvme", "parameters": "nvme", "path": "disk"}
EXPERTS = {"ffn_hidden": None, "experts": {"count": 4, "active": 2, "ffn_hidden": 96}}
SHAPES = {
    "gpt": {"kv_heads": 4},
    "gpt-many-positions": {"arch": "gpt", "kv_heads": 4, "vocab": 40},
    "llama": {},
    "llama-wide": {"arch": "llama", "ffn_hidden": 1024},
    "llama-few-words": {"arch": "llama", "ffn_hidden": 48, "vocab": 60},
    "gpt-neox": {"kv_heads": 4},
    "qwen3": EXPERTS,
    "mixtral": EXPERTS,
}


def plan_for(name: str, trainer: str, tp: int) -> Plan:
    model = {"arch": name, **SHAPES[name]}
    parallel = {"tp": tp, "pp": 1, "dp": 8 // tp, "zero": 3}
    return plan_of({"trainer": trainer, "model": model, "parallel": parallel, "offload": ON_DISK})


def held_by_a_buffer(plan: Plan) -> int:
    """Return the parameters of one tensor-parallel rank that the buffers of all its replicas hold."""
    section = deepspeed_config(plan)["zero_optimization"]["offload_param"]
    return int(section["buffer_size"]) * plan.layout.dp


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if "experts" not in shape])
def test_a_buffer_holds_the_largest_of_forges_parameters(name: str, tp: int):
    plan = plan_for(name, "forge", tp)
    sizes = []
    for spec in model_parameters(plan.model):
        rows, *columns = (spec.padded_rows or spec.shape[0], *spec.shape[1:])
        cut = tp if spec.partition_dim is not None else 1
        sizes.append(torch.Size((rows, *columns)).numel() // cut)
    assert held_by_a_buffer(plan) == max(sizes)


@pytest.mark.parametrize("name", SHAPES)
def test_a_buffer_holds_the_largest_of_hugging_faces_parameters(name: str):
    plan = plan_for(name, "transformers", 1)
    model = bare_model(plan, torch.float32, torch.device("meta"))
    largest = max(parameter.numel() for parameter in model.parameters())
    # Where Hugging Face has the two inputs of a gated MLP apart, they have half of it.
    assert largest <= held_by_a_buffer(plan) <= 2 * largest
