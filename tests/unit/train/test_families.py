"""Each family is one function of its weights: to the reference, our layers, and Hugging Face's class.

Of each the worst difference from Hugging Face's class is a row of docs/reference/verified.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

from dsforge.plan.types import Plan
from dsforge.train.hf_names import from_hugging_face, parts, to_hugging_face
from dsforge.train.hugging_face import bare_model
from tests.support import matrix
from tests.support.families import CONFIGS, GRADIENT, LOSS, SHAPES, layered
from tests.support.family_shapes import (
    CPU,
    SAMPLES,
    Measured,
    by_layers,
    by_reference,
    join,
    largest_difference,
    measure,
    plan_for,
    restless,
)

MATTERS: dict[str, dict[str, Any]] = {
    "mistral": {"window": None},
    "qwen2-window": {"window_layers": (1,)},
    "gpt-neox": {"parallel_residual": False},
    "pythia": {"rotary_fraction": 0.25},
    "neox-in-turn": {"parallel_residual": True},
    "gemma": {"scaled_embedding": False},
}
"""What a wrong model would have otherwise, with weights of the same shapes."""


def by_hugging_face(model: nn.Module, plan: Plan, weights: Mapping[str, torch.Tensor]) -> Measured:
    named = to_hugging_face((weights[name], some) for name, some in parts(plan.model).items())
    model.load_state_dict(named, strict=False)
    assert set(named) == set(dict(model.named_parameters()))
    loss = model(input_ids=SAMPLES, labels=SAMPLES).loss
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return loss.item(), from_hugging_face(gradients, plan.model)


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The groups of a world of one."""
    yield join(0, tmp_path_factory.mktemp("world") / "store", 1)
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


@pytest.mark.parametrize("family", SHAPES)
def test_one_function_of_its_weights_to_all_who_build_it(
    groups: Any, family: str, request: pytest.FixtureRequest
):
    from transformers import AutoConfig, AutoModelForCausalLM

    plan = plan_for(family, "transformers")
    weights = restless(plan.model)
    values = dict(CONFIGS[family])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    theirs = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    expected = by_hugging_face(theirs, plan, weights)
    own = bare_model(plan, torch.float32, CPU)
    measured = {
        "reference": (plan, by_reference(plan.model, weights)),
        "transformers": (plan, by_hugging_face(own, plan, weights)),
    }
    for trainer in layered(family):
        of_layers = plan_for(family, trainer)
        measured[trainer] = of_layers, by_layers(of_layers, groups, weights)
    apart = {builder: largest_difference(found, expected, of) for builder, (of, found) in measured.items()}
    for builder, (loss, gradient) in apart.items():
        assert (loss <= LOSS, gradient <= GRADIENT) == (True, True), (builder, loss, gradient)
    if request.config.getoption("--update-matrix"):
        losses, gradients = zip(*apart.values(), strict=True)
        matrix.update_family(family, max(losses), max(gradients))
    if family in MATTERS:
        other, _ = by_reference(plan.model.model_copy(update=MATTERS[family]), weights)
        assert abs(other - expected[0]) > 1e-3


def test_two_shards_have_the_gradients_of_the_whole(tmp_path: Path):
    """Of every family, norms over heads among them; under megatron-core sequences are split, too."""
    torch.multiprocessing.spawn(measure, (tmp_path,), nprocs=2)
    for shard in range(2):
        told = json.loads((tmp_path / f"{shard}.json").read_text("utf-8"))
        assert len(told) == sum(len(layered(family)) for family in SHAPES)
        for which, (loss, gradient) in told.items():
            assert (loss <= LOSS, gradient <= GRADIENT) == (True, True), (which, loss, gradient)
