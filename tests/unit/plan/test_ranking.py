"""Layouts side by side: other numbers of GPUs, other objectives, and what cannot be asked."""

from __future__ import annotations

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.plan.ranking import Judge, as_json, difference, opened, ranking
from dsforge.plan.resolve import examine, make_plan
from dsforge.recipe.load import LoadedRecipe, load_recipe
from tests.support.recipes import ROOT


def loaded(name: str, *changes: str) -> LoadedRecipe:
    return load_recipe(ROOT / "recipes" / f"{name}.yaml", list(changes))


def test_the_best_by_each_objective_has_least_of_it():
    recipe = opened(loaded("llama3-8b-megatron-lm"), everything=True)
    by_time = ranking(recipe, top=6, objective="time").found
    by_memory = ranking(recipe, top=6, objective="memory").found
    seconds = [one.step.total for one in by_time]
    sizes = [one.memory_bytes for one in by_memory]
    assert seconds == sorted(seconds)
    assert sizes == sorted(sizes)
    assert sizes[0] < min(one.memory_bytes for one in by_time)
    assert len({one.candidate.degrees for one in by_time}) == 6
    assert make_plan(recipe, objective="memory").layout.tp == by_memory[0].candidate.tp


def test_cost_may_leave_nodes_idle():
    recipe = opened(loaded("llama3-70b-256h100"), everything=True)
    found = ranking(recipe, top=3, objective="cost").found
    cost = [one.step.total * one.gpus for one in found]
    assert cost == sorted(cost)
    assert {one.gpus for one in found} <= {256, 128, 64, 32, 16, 8}
    whole = ranking(recipe, top=1, objective="time").found[0]
    assert cost[0] <= whole.step.total * 256


def test_another_number_of_gpus_is_whole_nodes_of_the_same():
    recipe = opened(loaded("gpt3-175b-1024a100"), gpus=512)
    assert (recipe.recipe.cluster.nodes, recipe.recipe.parallel.dp) == (64, "auto")
    assert make_plan(recipe).layout.dp == 8
    few = opened(loaded("llama3-8b-megatron-lm"), gpus=4)
    assert (few.recipe.cluster.nodes, few.recipe.cluster.gpus_per_node) == (1, 4)
    with pytest.raises(DsforgeError) as caught:
        opened(recipe, gpus=12)
    assert caught.value.code == "DSF779"
    assert caught.value.hint == "a multiple of 8"


@pytest.mark.parametrize(
    ("name", "everything", "message"),
    [
        ("smoke", True, "CPU runs prove logic, not speed"),
        ("gpt3-175b-1024a100", False, "the recipe fixes the layout"),
    ],
)
def test_what_cannot_be_ranked_is_refused_in_words(name: str, everything: bool, message: str):
    with pytest.raises(DsforgeError) as caught:
        ranking(opened(loaded(name), everything=everything), top=1, objective="time")
    assert caught.value.code == "DSF779"
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("change", "key", "hint"),
    [
        ("train.precision=fp32", "train.precision", "`train.precision: bf16`"),
        ("cluster.gpu=cpu", "cluster.gpu", "a GPU with published step times"),
    ],
)
def test_the_place_is_that_of_what_hides_the_costs(change: str, key: str, hint: str):
    with pytest.raises(DsforgeError) as caught:
        ranking(opened(loaded("llama3-8b-64h100", change), everything=True), top=1, objective="time")
    assert caught.value.place is not None
    assert str(caught.value.place) == f"argument `{change}`"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


def test_json_has_the_figures_of_the_table():
    recipe = opened(loaded("llama3-8b-megatron-lm"), everything=True)
    found = ranking(recipe, top=2, objective="time")
    made = as_json(found, 128 * 4096, "time")
    first, second = made["best"]
    assert first["why_not"] is None
    assert second["why_not"] == difference(found.found[1], found.found[0], "time")
    assert first["tokens_per_second_per_gpu"] == pytest.approx(128 * 4096 / first["step"]["total"] / 8)
    assert first["values"]["parallel.tp"] == found.found[0].candidate.tp


def test_another_degree_is_told_with_the_dp_that_it_leaves():
    judge = Judge(loaded("llama3-8b-128k-64h100", "parallel.cp=auto", "parallel.dp=2"))
    told = {value: verdict.message for value, verdict in judge.others("parallel.cp")}
    assert told[2].endswith("; with DP 4, where the recipe fixes 2")
    free = Judge(loaded("llama3-8b-128k-64h100", "parallel.cp=auto", "parallel.dp=auto"))
    assert "fixes" not in dict(free.others("parallel.cp"))[4].message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("parallel.pp=3",), "PP 3 = 3 does not divide the cluster's 8 x 8 = 64 ranks"),
        (("parallel.dp=7",), "DP 7 = 7 does not divide the cluster's 8 x 8 = 64 ranks"),
    ],
)
def test_a_degree_that_is_left_open_is_not_told_as_one(changes: tuple[str, ...], message: str):
    recipe = loaded(
        "llama3-8b-64h100", "parallel.tp=auto", "parallel.pp=auto", "parallel.zero=auto", *changes
    )
    assert message in [one.message for one in examine(recipe)]
