"""The search finds what trying everything finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.tables import find_hardware
from dsforge.cost.machine import machine_of
from dsforge.layout.shape import resolve_shape
from dsforge.plan.job import Measured
from dsforge.plan.program import engine_of, with_defaults
from dsforge.plan.search.best import BestFirst, Found, Key, Objective
from dsforge.plan.search.candidate import Candidate
from dsforge.plan.search.run import all_open, known_of, searcher
from dsforge.recipe.model import Recipe
from dsforge.recipe.settled import with_values

GIB = 2**30
TRAINERS = {
    "forge": {"trainer": "forge"},
    "transformers": {"trainer": "transformers"},
    "megatron-lm": {"trainer": "external", "external": {"flavour": "megatron-lm", "path": "x"}},
    "megatron-deepspeed": {"trainer": "external", "external": {"flavour": "megatron-deepspeed", "path": "x"}},
}
SCRIPT = {"trainer": "external", "external": {"flavour": "script", "path": "x", "entry": "y.py"}}
"""A program that takes everything; costs are those of another engine."""


def recipe_of(trainer: str, nodes: int, per_node: int, **changes: object) -> Recipe:
    data = {
        "version": 1,
        "model": "llama2-7b",
        "cluster": {"nodes": nodes, "gpus_per_node": per_node, "gpu": "a100-sxm-80gb"},
        "batch": {"global": 16, "seq_len": 2048},
        **TRAINERS.get(trainer, SCRIPT),
        **changes,
    }
    recipe, _ = with_defaults(Recipe.model_validate(data))
    return recipe


def search_of(recipe: Recipe, capacity: int) -> BestFirst:
    shape = resolve_shape(recipe.model, recipe.batch.seq_len)
    hardware = replace(find_hardware(recipe.cluster.gpu), memory_bytes=capacity)
    machine = machine_of(recipe.cluster.gpu, recipe.cluster.gpus_per_node)
    assert machine is not None
    known = known_of(recipe, hardware)
    if isinstance(known, str):
        known = Measured(machine, "megatron-core")
    return searcher(recipe, shape, hardware, known, recipe.cluster.nodes)


def everything(recipe: Recipe) -> Iterator[Candidate]:
    """Yield every way to put the numbers together; rules and memory are asked later, one by one."""
    shape = resolve_shape(recipe.model, recipe.batch.seq_len)
    gpus, size = recipe.cluster.nodes * recipe.cluster.gpus_per_node, recipe.batch.global_size
    upto = range(1, gpus + 1)
    experts = shape.experts.count if shape.experts else 1
    offload = [("none", "none")]
    if experts > 1 or capabilities(engine_of(recipe)).takes("offload.optimizer", "cpu"):
        offload += [("cpu", "none"), ("cpu", "cpu")]
    for tp, pp, cp in product(upto, repeat=3):
        dp, rest = divmod(gpus, tp * pp * cp)
        if rest or not dp or size % dp or shape.heads % tp or shape.layers % pp or shape.ffn_hidden % tp:
            continue
        if tp > recipe.cluster.gpus_per_node or shape.kv_heads % tp:
            continue
        micros = [micro for micro in range(1, size // dp + 1) if size // dp % micro == 0]
        parts = range(1, shape.layers // pp + 1) if pp > 1 else (1,)
        vps = [vp for vp in parts if shape.layers % (pp * vp) == 0]
        eps = [ep for ep in range(1, experts + 1) if experts % ep == 0]
        for ep, vp, micro, zero, recompute, split, places in product(
            eps, vps, micros, range(4), ("none", "selective", "full"), (False, True), offload
        ):
            schedule = "interleaved" if vp > 1 else "1f1b"
            yield Candidate(*(tp, pp, cp, ep, vp, dp, micro, zero, recompute, split, *places, schedule))


def brute_force(
    recipe: Recipe, made: BestFirst, top: int, objective: Objective, schedules: tuple[str, ...] = ()
) -> list[Key]:
    """Return the best keys, one a set of degrees, from costing everything and asking every rule."""
    fits = []
    for one in everything(recipe):
        if schedules and one.schedule not in schedules:
            continue
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
    assert found or gib < 80
    assert found == brute_force(recipe, made, 5, objective)


@pytest.mark.parametrize(
    ("gib", "objective", "partition"),
    [(250, "time", "uniform"), (450, "memory", "parameters"), (1000, "time", "parameters")],
)
def test_experts_and_offload_are_searched_too(gib: int, objective: Objective, partition: str):
    recipe = recipe_of("script", 1, 2, model="mixtral-8x7b", batch={"global": 2, "seq_len": 2048})
    recipe = all_open(with_values(recipe, {"parallel.partition": partition}))
    made = search_of(recipe, gib * GIB)
    found = made.best(4, objective)
    assert [one.key(objective) for one in found] == brute_force(recipe, made, 4, objective)
    assert any(one.candidate.ep > 1 for one in found)
    assert (gib == 1000) is not any(one.candidate.optimizer == "cpu" for one in found)


@pytest.mark.parametrize("objective", ["time", "memory", "cost"])
def test_virtual_stages_that_are_asked_for_leave_out_batches_they_cannot_take(objective: Objective):
    """Of 12 sequences two replicas get 6: micro-batches of 2 make three, which two stages do not share."""
    recipe = recipe_of("megatron-lm", 1, 4, batch={"global": 12, "seq_len": 2048})
    recipe = with_values(all_open(recipe), {"parallel.schedule": "interleaved"})
    made = search_of(recipe, 80 * GIB)
    found = made.best(3, objective)
    assert found
    assert all(one.candidate.vp > 1 for one in found)
    expected = brute_force(recipe, made, 3, objective, ("interleaved",))
    assert [one.key(objective) for one in found] == expected


def test_the_search_looks_at_few_of_them():
    recipe = all_open(recipe_of("megatron-lm", 1, 8, batch={"global": 16, "seq_len": 2048}))
    made = search_of(recipe, 80 * GIB)
    assert made.best(1, "time")
    assert made.costed < sum(1 for _ in everything(recipe)) / 10
