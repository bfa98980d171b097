"""The search finds what trying everything finds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from dsforge.catalog.tables import find_hardware
from dsforge.layout.shape import resolve_shape
from dsforge.plan.job import Measured
from dsforge.plan.program import with_defaults
from dsforge.plan.search.best import BestFirst, Found, Key, Objective
from dsforge.plan.search.candidate import Candidate
from dsforge.plan.search.run import all_open, known_of, searcher
from dsforge.recipe.model import Recipe

GIB = 2**30
TRAINERS = {
    "forge": {"trainer": "forge"},
    "transformers": {"trainer": "transformers"},
    "megatron-lm": {"trainer": "external", "external": {"flavour": "megatron-lm", "path": "x"}},
    "megatron-deepspeed": {"trainer": "external", "external": {"flavour": "megatron-deepspeed", "path": "x"}},
}


def recipe_of(trainer: str, nodes: int, per_node: int, **changes: object) -> Recipe:
    data = {
        "version": 1,
        "model": "llama2-7b",
        "cluster": {"nodes": nodes, "gpus_per_node": per_node, "gpu": "a100-sxm-80gb"},
        "batch": {"global": 16, "seq_len": 2048},
        **TRAINERS[trainer],
        **changes,
    }
    recipe, _ = with_defaults(Recipe.model_validate(data))
    return recipe


def search_of(recipe: Recipe, capacity: int) -> BestFirst:
    shape = resolve_shape(recipe.model, recipe.batch.seq_len)
    hardware = replace(find_hardware(recipe.cluster.gpu), memory_bytes=capacity)
    known = known_of(recipe, hardware)
    assert isinstance(known, Measured)
    return searcher(recipe, shape, hardware, known, recipe.cluster.nodes)


def everything(recipe: Recipe, made: BestFirst) -> list[Candidate]:
    """Return every way to put the numbers together; rules and memory are asked later, one by one."""
    shape = resolve_shape(recipe.model, recipe.batch.seq_len)
    gpus, size = recipe.cluster.nodes * recipe.cluster.gpus_per_node, recipe.batch.global_size
    upto = range(1, gpus + 1)
    found = []
    for tp, pp, cp in product(upto, repeat=3):
        dp, rest = divmod(gpus, tp * pp * cp)
        if rest or not dp or size % dp or shape.heads % tp or shape.layers % pp or shape.ffn_hidden % tp:
            continue
        if tp > recipe.cluster.gpus_per_node:
            continue
        micros = [micro for micro in range(1, size // dp + 1) if size // dp % micro == 0]
        parts = range(1, shape.layers // pp + 1) if pp > 1 else (1,)
        vps = [vp for vp in parts if shape.layers % (pp * vp) == 0]
        for vp, micro, zero, recompute, split in product(
            vps, micros, range(4), ("none", "selective", "full"), (False, True)
        ):
            schedule = "interleaved" if vp > 1 else "1f1b"
            found.append(
                Candidate(*(tp, pp, cp, 1, vp, dp, micro, zero, recompute, split, "none", "none", schedule))
            )
    return found


def brute_force(recipe: Recipe, made: BestFirst, top: int, objective: Objective) -> list[Key]:
    """Return the best keys, one a set of degrees, from costing everything and asking every rule."""
    fits = []
    for one in everything(recipe, made):
        size = made.memory(one)
        if size <= made.capacity:
            found = Found(one, recipe.cluster.nodes * recipe.cluster.gpus_per_node, made.step(one), size)
            fits.append((found.key(objective), one))
    best: dict[tuple[int, ...], Key] = {}
    for key, one in sorted(fits):
        if len(best) == top:
            break
        if one.degrees not in best and made.legality.fault(one) is None:
            best[one.degrees] = key
    return list(best.values())


@settings(max_examples=12)
@given(
    st.sampled_from(sorted(TRAINERS)),
    st.sampled_from([(1, 2), (1, 4), (2, 2), (1, 8)]),
    st.sampled_from([25, 30, 45, 80, 200]),
    st.sampled_from(["time", "memory", "cost"]),
    st.sampled_from([2048, 2050]),
)
def test_the_best_are_those_of_brute_force(
    trainer: str, nodes: tuple[int, int], gib: int, objective: Objective, seq_len: int
):
    recipe = all_open(recipe_of(trainer, *nodes, batch={"global": 8, "seq_len": seq_len}))
    made = search_of(recipe, gib * GIB)
    found = [one.key(objective) for one in made.best(5, objective)]
    assert found == brute_force(recipe, made, 5, objective)
