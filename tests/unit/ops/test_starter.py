"""A starter recipe of every preset: valid with the trainer that builds it, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError, Severity
from dsforge.catalog.tables import models
from dsforge.ops.starter import starter_recipe
from dsforge.plan.resolve import examine, make_plan
from dsforge.plan.verdict import memory_findings
from dsforge.recipe.load import load_recipe
from tests.support.recipes import write

ROUTED = {"mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b"}


def errors_of(path: Path) -> list[str]:
    loaded = load_recipe(path)
    found = [*examine(loaded), *memory_findings(loaded, make_plan(loaded, refuse=False))]
    return [one.message for one in found if one.severity is Severity.ERROR]


def test_every_preset_that_a_trainer_builds_has_a_starter_recipe(tmp_path: Path):
    by_core, refused = set(), {}
    for name in models():
        try:
            text = starter_recipe(name, 1024, 8, "a100-sxm-80gb")
        except DsforgeError as fault:
            refused[name] = f"{fault.code}: {fault.message}"
            continue
        assert errors_of(write(tmp_path, text)) == [], name
        if "\ntrainer: megatron-core\n" in text:
            by_core.add(name)
    assert by_core == ROUTED
    untold = "DSF141: forge trains "
    assert [name for name, why in refused.items() if not why.startswith(untold) or name not in why] == []
    assert len(refused) < len(models()) / 2


def test_experts_are_shared_out_where_that_makes_room():
    text = starter_recipe("mixtral-8x7b", 64, 8, "a100-sxm-80gb")
    assert "\nparallel: {tp: 1, pp: 2, ep: 8} " in text


@pytest.mark.parametrize(
    ("gpu", "precision"), [("v100-sxm-32gb", "fp16"), ("a100-sxm-40gb", "bf16"), ("cpu", "fp32")]
)
def test_a_starter_trains_in_what_the_gpu_multiplies_in(gpu: str, precision: str, tmp_path: Path):
    recipe = write(tmp_path, starter_recipe("gpt2", 8, 8, gpu))
    assert load_recipe(recipe).recipe.train.precision == precision
    assert [one.code for one in examine(load_recipe(recipe)) if one.code == "DSF822"] == []


def test_a_starter_has_the_samples_that_were_asked_for(tmp_path: Path):
    recipe = write(tmp_path, starter_recipe("llama3-8b", 64, 8, "h100-sxm-80gb", seq_len=8192))
    assert load_recipe(recipe).recipe.batch.seq_len == 8192
    assert errors_of(recipe) == []
    with pytest.raises(DsforgeError) as caught:
        starter_recipe("gpt2", 8, 8, "h100-sxm-80gb", seq_len=2048)
    assert caught.value.code == "DSF112"
