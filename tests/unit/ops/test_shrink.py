"""How a large layout is made to fit a small machine."""

from __future__ import annotations

import pytest

from dsforge.ops.shrink import shrink
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import load_recipe
from tests.support.recipes import ROOT


@pytest.mark.parametrize(
    ("max_ranks", "degrees"),
    # 8 x 8 x 16: DP to 2, then the larger of TP and PP is halved until it fits; then DP goes.
    [(128, (8, 8, 2)), (64, (4, 8, 2)), (32, (4, 4, 2)), (16, (2, 4, 2)), (8, (2, 2, 2)), (4, (2, 2, 1))],
)
def test_degrees_are_halved_the_larger_first(max_ranks: int, degrees: tuple[int, int, int]):
    recipe = load_recipe(ROOT / "recipes" / "gpt3-175b-1024a100.yaml")
    data = shrink(recipe.recipe, make_plan(recipe), max_ranks).data["parallel"]
    assert (data["tp"], data["pp"], data["dp"]) == degrees


def test_each_change_is_told():
    recipe = load_recipe(ROOT / "recipes" / "gpt3-175b-1024a100.yaml")
    changes = {c.key: (c.recipe, c.used) for c in shrink(recipe.recipe, make_plan(recipe), 16).changes}
    assert changes["parallel.dp"] == (16, 2)
    assert changes["model.layers"] == (96, 8)  # two a stage
    assert changes["model.vocab"][0] == 50_257
    assert changes["cluster.nodes"] == (128, 1)
    assert changes["cluster.gpu"] == ("a100-sxm-80gb", "cpu")
    assert all(change.why for change in shrink(recipe.recipe, make_plan(recipe), 16).changes)
