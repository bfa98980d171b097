"""A recipe of an external program is shrunk like any other; a script is not, and none is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.ops.shrink import shrink
from dsforge.ops.smoke import shrunk_recipe, smoke, with_changes
from dsforge.ops.start import StartOptions
from dsforge.ops.verify import verify
from dsforge.plan.resolve import examine, make_plan
from tests.external_support.recipes import external

OPTIONS = StartOptions(Path("runs"), ("dsforge",), {})


@pytest.mark.parametrize("flavour", ["megatron-deepspeed", "megatron-lm", "gpt-neox"])
def test_a_shrunken_recipe_still_names_its_program_and_breaks_no_rule(flavour):
    recipe = external(
        flavour, {"cluster": {"gpus_per_node": 8, "gpu": "h100-sxm-80gb"}}, {"batch": {"global": 64}}
    )
    small = shrink(recipe.recipe, make_plan(recipe), max_ranks=4)
    shrunk = with_changes(shrunk_recipe(recipe, small), "checkpoint", every_steps=5, keep=0)
    assert examine(shrunk) == []
    plan = make_plan(shrunk)
    assert plan.external is not None
    assert (plan.external.flavour, plan.accelerator, plan.layout.dp) == (flavour, "cpu", 1)


def test_sequence_parallelism_is_shrunk_away_on_a_cpu_and_told():
    recipe = external(
        "megatron-lm",
        {"cluster": {"gpus_per_node": 8, "gpu": "h100-sxm-80gb"}},
        {"parallel": {"tp": 2, "sequence_parallel": True}},
        {"batch": {"global": 64}},
    )
    small = shrink(recipe.recipe, make_plan(recipe), max_ranks=4)
    (change,) = [one for one in small.changes if one.key == "parallel.sequence_parallel"]
    assert (change.recipe, change.used) == (True, False)
    assert examine(shrunk_recipe(recipe, small)) == []
    kept = shrink(recipe.recipe, make_plan(recipe), max_ranks=4, gpu="h100-sxm-80gb")
    assert kept.data["parallel"]["sequence_parallel"] is True
    alone = shrink(recipe.recipe, make_plan(recipe), max_ranks=1, gpu="h100-sxm-80gb")
    assert (alone.data["parallel"]["tp"], alone.data["parallel"]["sequence_parallel"]) == (1, False)


def test_a_script_is_not_shrunk_and_no_program_is_compared():
    asked = ("tp", "pp", "dp", "zero")
    words = [*(f"{{parallel.{key}}}" for key in asked), "{batch.micro}", "{train.steps}", "{train.precision}"]
    script = external("script", entry="a.py", arguments=words)
    with pytest.raises(DsforgeError) as caught:
        smoke(script, OPTIONS, print, print, max_ranks=4, steps=12)
    assert caught.value.code == "DSF072"
    with pytest.raises(DsforgeError) as caught:
        verify(external("megatron-lm"), OPTIONS, print, max_ranks=4, steps=20)
    assert caught.value.code == "DSF072"
