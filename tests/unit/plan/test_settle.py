"""`auto` becomes the best layout; what the recipe fixes stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.catalog.tables import find_hardware
from dsforge.layout.shape import resolve_shape
from dsforge.plan.estimate import Estimate, estimate
from dsforge.plan.job import Measured
from dsforge.plan.program import with_defaults
from dsforge.plan.resolve import examine, make_plan
from dsforge.plan.search.run import all_open, known_of, search
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe, load_recipe
from dsforge.recipe.settled import with_values
from tests.support.recipes import ROOT

OPEN = ("parallel={tp: auto, pp: auto, zero: auto}", "train.recompute=auto", "batch.micro=auto")


def loaded(name: str, *changes: str) -> LoadedRecipe:
    return load_recipe(ROOT / "recipes" / f"{name}.yaml", list(changes))


def why(plan: Plan) -> dict[str, str]:
    return {decision.key: decision.why for decision in plan.decisions}


def test_auto_is_never_slower_than_what_the_recipe_says():
    own = make_plan(loaded("gpt3-175b-1024a100"))
    best = make_plan(loaded("gpt3-175b-1024a100", *OPEN, "parallel.dp=auto"))
    mine, theirs = estimate(best), estimate(own)
    assert isinstance(mine, Estimate)
    assert isinstance(theirs, Estimate)
    assert mine.step.total < theirs.step.total
    assert best.batch.global_size == own.batch.global_size
    assert best.train.precision == own.train.precision
    for key in ("parallel.tp", "parallel.pp", "parallel.zero", "train.recompute", "batch.micro"):
        assert why(best)[key] == "the fastest layout that fits, by the cost model"


def test_what_is_written_stays_and_the_rest_fits_around_it():
    plan = make_plan(loaded("gpt3-175b-1024a100", *OPEN, "parallel.tp=4", "parallel.dp=auto"))
    assert plan.layout.tp == 4
    assert plan.layout.pp > 1
    assert "parallel.tp" not in why(plan)


def test_zero_and_micro_batch_alone_keep_to_the_simple_rules():
    plan = make_plan(loaded("llama3-8b-64h100", "batch.micro=auto", "parallel.zero=auto"))
    assert (plan.batch.micro, why(plan)["batch.micro"]) == (
        1,
        "the smallest activations and, with a pipeline, the smallest bubble",
    )


def test_a_machine_that_nobody_measured_gets_the_simplest():
    plan = make_plan(loaded("smoke", "parallel={tp: auto, pp: auto, vp: auto, schedule: auto}"))
    assert (plan.layout.tp, plan.layout.pp, plan.layout.vp, plan.layout.schedule) == (1, 1, 1, "1f1b")
    assert why(plan)["parallel.tp"] == "the simplest: CPU runs prove logic, not speed"
    assert why(plan)["parallel.vp"].startswith("the only value: DeepSpeed's pipeline engine")


def test_a_schedule_alone_follows_from_the_virtual_stages():
    changes = ("parallel={tp: 1, pp: 4, vp: 2, schedule: auto}",)
    plan = make_plan(loaded("llama3-8b-megatron-lm", *changes))
    assert plan.layout.schedule == "interleaved"
    words = [word.text for word in plan.external.arguments] if plan.external else []
    at = words.index("--num-layers-per-virtual-pipeline-stage")
    assert words[at + 1] == "4"


def test_virtual_stages_that_are_chosen_bring_their_schedule():
    plan = make_plan(loaded("llama3-8b-megatron-lm", "parallel={tp: 1, pp: 4, vp: auto, zero: 1}"))
    assert plan.layout.vp > 1
    assert plan.layout.schedule == "interleaved"
    assert "parallel.schedule" in why(plan)
    own = make_plan(loaded("llama3-8b-megatron-lm", "parallel={tp: 1, pp: 4, vp: auto, schedule: 1f1b}"))
    assert (own.layout.vp, own.layout.schedule) == (1, "1f1b")


def test_where_nothing_fits_the_error_says_what_the_smallest_takes():
    recipe = loaded("gpt-1t-3072a100", *OPEN, "cluster.nodes=8", "parallel.dp=auto")
    (found,) = examine(recipe)
    assert (found.code, found.key) == ("DSF770", "parallel.tp")
    assert "no layout fits: the smallest takes" in found.message
    assert "of 85.9 GB" in found.message
    with pytest.raises(DsforgeError) as caught:
        make_plan(recipe, refuse=False)
    assert caught.value.code == "DSF770"
    assert caught.value.place is not None


def test_where_nothing_is_legal_the_rule_speaks():
    recipe = loaded("gpt3-175b-1024a100", *OPEN, "parallel.tp=7", "parallel.dp=auto")
    assert "DSF101" in {one.code for one in examine(recipe)}
    assert "DSF770" not in {one.code for one in examine(recipe)}


def test_a_plan_of_the_search_costs_what_the_search_said():
    for name in ("llama3-8b-megatron-lm", "llama3-70b-256h100", "gpt3-175b-1024a100"):
        given = loaded(name)
        recipe, _ = with_defaults(given.recipe)
        shape = resolve_shape(recipe.model, recipe.batch.seq_len, given.model_config)
        hardware = find_hardware(recipe.cluster.gpu)
        known = known_of(recipe, hardware)
        assert isinstance(known, Measured)
        for one in search(all_open(recipe), shape, hardware, known, top=4).found:
            plan = make_plan(replace(given, recipe=with_values(given.recipe, one.candidate.values())))
            made = estimate(plan)
            assert isinstance(made, Estimate)
            assert made.step == one.step


def test_experts_under_tensor_parallelism_come_with_split_sequences():
    changes = ("parallel={tp: 2, ep: 8, zero: 1, sequence_parallel: auto}",)
    assert make_plan(loaded("mixtral-8x7b-64h100", *changes)).layout.sequence_parallel
