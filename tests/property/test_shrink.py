"""Whatever legal recipe is shrunk, the result is legal, fits the machine, and keeps what it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dsforge.base.errors import Severity
from dsforge.ops.shrink import shrink
from dsforge.plan.resolve import examine, make_plan
from dsforge.recipe.document import Document
from dsforge.recipe.load import LoadedRecipe, check, load_recipe
from tests.support.recipes import SHIPPED, loaded


@st.composite
def recipes(draw: st.DrawFn) -> LoadedRecipe:
    """Return a recipe that no rule refuses."""
    tp, pp, dp = draw(st.integers(1, 8)), draw(st.integers(1, 8)), draw(st.integers(1, 6))
    micro = draw(st.integers(1, 4))
    kv_heads = tp * draw(st.integers(1, 2))
    recompute = draw(st.sampled_from(["none", "selective", "full"]))
    changes: dict[str, Any] = {
        "name": draw(st.sampled_from(["small", "n" * 200])),
        "model": {
            "arch": draw(st.sampled_from(["gpt", "llama"])),
            "layers": draw(st.integers(pp, 20)),
            "hidden": draw(st.sampled_from([64, 2048])),
            "heads": kv_heads * draw(st.integers(1, 4)),
            "kv_heads": kv_heads,
            "head_dim": draw(st.sampled_from([2, 64])),
            "ffn_hidden": tp * draw(st.integers(1, 64)),
            "vocab": draw(st.sampled_from([2, 300, 512, 50_257])),
            "tied": draw(st.booleans()),
        },
        "cluster": {"gpus_per_node": tp * pp * dp, "gpu": draw(st.sampled_from(["cpu", "a100-sxm-80gb"]))},
        "parallel": {
            "tp": tp,
            "pp": pp,
            "dp": dp,
            "zero": draw(st.sampled_from([1, "auto"] if pp > 1 else [0, 1, 2, 3, "auto"])),
            "partition": draw(st.sampled_from(["uniform", "parameters"])),
        },
        "batch": {
            "global": micro * dp * draw(st.integers(1, 64)),
            "micro": micro,
            "seq_len": draw(st.sampled_from([1, 64, 8192])),
        },
        "train": {
            "precision": draw(st.sampled_from(["fp32", "bf16"])),
            "recompute": recompute,
            "recompute_every": draw(st.integers(1, 5)) if recompute == "full" else 1,
            "dropout": draw(st.sampled_from([0.0, 0.1])),
            "steps": draw(st.integers(5, 1000)),
            "eval_every": draw(st.sampled_from([0, 3, 500])),
        },
        "optimizer": {"warmup_steps": draw(st.integers(0, 4)), "min_lr": draw(st.sampled_from([0.0, 1e-5]))},
    }
    recipe = loaded(changes)
    assume(not any(found.severity is Severity.ERROR for found in examine(recipe)))
    return recipe


def _shrunk(recipe: LoadedRecipe, max_ranks: int) -> tuple[LoadedRecipe, set[str]]:
    small = shrink(recipe.recipe, make_plan(recipe), max_ranks, steps=20)
    document = Document(data=small.data)
    return LoadedRecipe(check(document), Path("small.yaml"), "", document), {c.key for c in small.changes}


@settings(max_examples=200, suppress_health_check=[HealthCheck.filter_too_much])
@given(recipes(), st.integers(1, 16))
def test_the_shrunken_recipe_is_legal_and_small(recipe: LoadedRecipe, max_ranks: int):
    before = make_plan(recipe)
    small, changed = _shrunk(recipe, max_ranks)
    plan = make_plan(small)  # no rule refuses it
    layout = plan.layout
    assert layout.world_size <= max_ranks
    assert plan.accelerator == "cpu"
    assert layout.nodes == 1
    assert layout.dp <= 2
    assert plan.parameters.total <= 2_100_000
    assert plan.train.steps == 20
    assert plan.data.builtin_vocab is not None
    # What must stay as it is, unless the machine is too small for the layout.
    assert (plan.model.arch, plan.model.tied) == (before.model.arch, before.model.tied)
    assert (plan.model.kv_heads < plan.model.heads) == (before.model.kv_heads < before.model.heads)
    assert (layout.schedule, layout.zero) == (before.layout.schedule, before.layout.zero)
    assert (plan.train.precision, plan.train.recompute) == (before.train.precision, before.train.recompute)
    assert (plan.train.dropout, plan.train.seed) == (before.train.dropout, before.train.seed)
    kept = plan.train.recompute_every == before.train.recompute_every
    assert kept or "train.recompute_every" in changed
    assert bool(plan.train.eval_every) == bool(before.train.eval_every)
    assert plan.train.eval_every <= 10
    assert plan.train.eval_samples <= 2 * plan.batch.global_size
    assert plan.optimizer.grad_clip == before.optimizer.grad_clip
    for degree in ("tp", "pp", "dp"):
        kept = getattr(layout, degree) == getattr(before.layout, degree)
        assert kept or f"parallel.{degree}" in changed
    if before.layout.tp * before.layout.pp * min(2, before.layout.dp) <= max_ranks:
        assert (layout.tp, layout.pp) == (before.layout.tp, before.layout.pp)


def test_shipped_recipes_keep_tp_and_pp_on_sixteen_ranks():
    for path in SHIPPED:
        recipe = load_recipe(path)
        before = make_plan(recipe).layout
        plan = make_plan(_shrunk(recipe, 16)[0])
        if before.tp * before.pp * before.cp * 2 <= 16:
            assert (plan.layout.tp, plan.layout.pp, plan.layout.dp) == (
                before.tp,
                before.pp,
                min(2, before.dp),
            )


def test_the_smoke_recipe_stays_as_it_is_but_for_its_length():
    recipe = load_recipe(next(path for path in SHIPPED if path.stem == "smoke"))
    _, changed = _shrunk(recipe, 16)
    assert changed <= {"train.steps", "optimizer.lr", "optimizer.warmup_steps", "batch.global"}
