"""What a plan is estimated to take of its GPUs, and the edits that make it fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsforge.plan.memory import MemoryEstimate, memory_estimate, verdict_of
from dsforge.plan.mending import edits_that_fit
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe, load_recipe
from tests.support.recipes import ROOT


def loaded(name: str, *changes: str) -> LoadedRecipe:
    return load_recipe(ROOT / "recipes" / f"{name}.yaml", list(changes))


def planned(name: str, *changes: str) -> Plan:
    return make_plan(loaded(name, *changes), refuse=False)


def test_an_estimate_adds_up_and_agrees_with_the_states_of_the_plan():
    plan = planned("gpt3-175b-1024a100")
    made = memory_estimate(plan)
    assert isinstance(made, MemoryEstimate)
    assert len(made.stages) == 8
    for stage, held in zip(made.stages, plan.layout.stages, strict=True):
        assert stage.layers == held.layers
        states = {name: stage.components[name] for name in ("weights", "gradients", "optimizer")}
        told = held.state_bytes_per_rank
        wanted = {"weights": told["parameters"], "gradients": told["gradients"]}
        assert states == pytest.approx({**wanted, "optimizer": told["optimizer"]}, rel=1e-4)
        assert stage.components["sums"] == pytest.approx(held.fp32_gradient_sum_bytes_per_rank, rel=1e-4)
    assert made.fullest.stage == 0
    assert made.verdict == "fits"
    assert made.margin_bytes == 80 * 2**30 - made.fullest.device


@pytest.mark.parametrize(
    ("allocated", "device", "verdict"),
    [
        (60, 71, "fits"),
        (60, 72, "tight"),
        (91, 100, "tight"),  # the allocator gives back what it reserves beyond
        (92, 100, "does not fit"),
    ],
)
def test_verdicts_know_the_model_s_error(allocated: int, device: int, verdict: str):
    made = memory_estimate(planned("llama3-8b-8a100"))
    assert isinstance(made, MemoryEstimate)
    stage = replace(made.fullest, allocated=allocated, device=device)
    assert verdict_of((stage,), 80, 0.125) == verdict


def test_a_plan_that_does_not_fit_is_an_error_and_one_that_may_not_a_warning():
    much = memory_estimate(planned("llama3-8b-8a100", "train.recompute=none", "batch.micro=4"))
    assert isinstance(much, MemoryEstimate)
    found = much.finding("a hint")
    assert found is not None
    assert (found.code, found.severity.value, found.hint) == ("DSF750", "error", "a hint")
    near = memory_estimate(planned("llama3-8b-megatron-lm", "train.recompute=none", "batch.micro=4"))
    assert isinstance(near, MemoryEstimate)
    found = near.finding(None)
    assert found is not None
    assert (found.code, found.severity.value) == ("DSF751", "warning")
    assert " of a GPU: it fits only where the estimate is too high (published runs: within " in found.message
    below = replace(near, capacity_bytes=near.fullest.device + 1).finding(None)
    assert below is not None
    assert "it fits only" not in below.message
    few = memory_estimate(planned("llama3-8b-8a100"))
    assert isinstance(few, MemoryEstimate)
    assert few.finding(None) is None


def test_there_is_none_on_a_cpu():
    assert memory_estimate(planned("smoke")) == "CPU runs prove logic, not speed"


def test_nothing_of_it_stands_in_the_plan():
    plan = planned("gpt3-175b-1024a100")
    made = memory_estimate(plan)
    assert isinstance(made, MemoryEstimate)
    assert Plan.model_validate({**plan.to_json_value(), "memory": made.to_json_value()}) == plan
    assert "memory" not in plan.to_json_value()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama3-8b-8a100", ("train.recompute=none", "batch.micro=4")),
        ("llama3-8b-megatron-lm", ("train.recompute=none", "batch.micro=4")),
        ("llama2-7b-8a100", ("train.recompute=none", "batch.micro=4")),
    ],
)
def test_every_edit_makes_the_plan_fit(name: str, changes: tuple[str, ...]):
    recipe = loaded(name, *changes)
    edits = edits_that_fit(recipe, make_plan(recipe, refuse=False))
    assert 1 <= len(edits) <= 3
    order = [("offload.optimizer" in edit.changes, edit.step_seconds) for edit in edits]
    assert order == sorted(order)
    for edit in edits:
        again = memory_estimate(make_plan(loaded(name, *changes, *edit.text.split())))
        assert isinstance(again, MemoryEstimate)
        assert again.verdict == "fits"
        assert again.fullest.device == edit.device_bytes


def test_edits_keep_to_what_the_trainer_takes():
    """forge keeps its norms whole; the global batch is never an edit."""
    recipe = loaded("llama3-8b-8a100", "train.recompute=none", "batch.micro=4")
    keys = {key for edit in edits_that_fit(recipe, make_plan(recipe, refuse=False)) for key in edit.changes}
    degrees = {"parallel.zero", "parallel.tp", "parallel.pp"}
    assert keys <= {"batch.micro", "train.recompute", "offload.optimizer", "offload.parameters", *degrees}
