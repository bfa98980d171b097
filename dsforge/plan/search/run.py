"""The search for a recipe: which of its keys are open, and the best values for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.tables import Hardware
from dsforge.external.vocabulary import vocab_divisor
from dsforge.layout.optimizers import moments
from dsforge.layout.shape import Shape
from dsforge.plan.auto import resolve_autos
from dsforge.plan.job import Measured, Unmeasured, measured
from dsforge.plan.program import engine_of
from dsforge.plan.search.best import BestFirst, Found, Objective
from dsforge.plan.search.candidate import KEYS, Jobs
from dsforge.plan.search.legality import Legality
from dsforge.plan.search.space import Space
from dsforge.recipe.model import Recipe
from dsforge.recipe.settled import SIMPLEST, left_open, settled, value_of, with_values


@dataclass(frozen=True, slots=True)
class Searched:
    """The best layouts, none where no legal one fits, and how many the search had to cost.

    `memory_error`: the memory model's, for which room is left on every GPU.
    """

    found: tuple[Found, ...]
    costed: int
    memory_error: float


def all_open(recipe: Recipe) -> Recipe:
    """Return a recipe that leaves everything to the search that it can choose."""
    return with_values(recipe, dict.fromkeys(KEYS, "auto"))


def known_of(recipe: Recipe, hardware: Hardware) -> Measured | Unmeasured:
    """Return what a recipe's costs are known by, or in words why they are not."""
    cluster = recipe.cluster
    trainer, precision = engine_of(recipe), recipe.train.precision
    return measured(hardware.name, cluster.gpus_per_node, trainer, precision, cluster.shape)


def search(
    recipe: Recipe,
    shape: Shape,
    hardware: Hardware,
    known: Measured,
    *,
    top: int = 1,
    objective: Objective = "time",
) -> Searched:
    """Return the best layouts of what a recipe leaves open, on its whole cluster.

    Under `cost` also on halves, quarters and so on of its nodes: fewer GPUs waste less on communication.
    Under `time` and `cost` open offload is the last resort: no published run that estimates are held against
    offloads, so what it costs is not shown by any.
    """
    open_offload = [key for key in left_open(recipe) if key.startswith("offload.")]
    if open_offload and objective != "memory":
        kept = with_values(recipe, dict.fromkeys(open_offload, "none"))
        first = _search(kept, shape, hardware, known, top=top, objective=objective)
        if first.found:
            return first
    return _search(recipe, shape, hardware, known, top=top, objective=objective)


def _search(
    recipe: Recipe, shape: Shape, hardware: Hardware, known: Measured, *, top: int, objective: Objective
) -> Searched:
    sizes = [recipe.cluster.nodes]
    while objective == "cost" and sizes[-1] % 2 == 0:
        sizes.append(sizes[-1] // 2)
    found: list[Found] = []
    costed = 0
    for nodes in sizes:
        one = searcher(recipe, shape, hardware, known, nodes)
        found += one.best(top, objective)
        costed += one.costed
    found.sort(key=lambda one: one.key(objective))
    return Searched(tuple(found[:top]), costed, one.memory_error)


def searcher(recipe: Recipe, shape: Shape, hardware: Hardware, known: Measured, nodes: int) -> BestFirst:
    """Return the search on so many nodes, ready to start."""
    simplest = {key: SIMPLEST[key] for key in left_open(recipe)}
    base = resolve_autos(settled(recipe, simplest), shape, hardware)
    space = Space(recipe, shape, hardware, capabilities(engine_of(recipe)), nodes)
    fixed: dict[str, Any] = {
        "gpus": space.gpus,
        "seq_len": recipe.batch.seq_len,
        "global_batch": recipe.batch.global_size,
        "precision": recipe.train.precision,
        "partition": recipe.parallel.partition,
        "recompute_every": recipe.train.recompute_every,
        "moments": moments(recipe.optimizer.type, recipe.optimizer.momentum),
        "dropout": recipe.train.dropout,
        "attention_dropout": recipe.train.attention_dropout,
        "whole_tables": capabilities(recipe.trainer).whole_tables,
        "gathers_context": recipe.external is None,
    }
    jobs = Jobs(shape, known, fixed, vocab_divisor(recipe))
    legality = Legality(recipe, shape, hardware, base, nodes)
    return BestFirst(space, jobs, legality, room(hardware, jobs.memory_error))


def room(hardware: Hardware, memory_error: float) -> int | None:
    """Return the bytes that an estimate may take of a GPU, so that it fits when the model errs."""
    return None if hardware.memory_bytes is None else int(hardware.memory_bytes / (1 + memory_error))


def open_keys(recipe: Recipe) -> list[str]:
    """Return the keys that a search decides, `auto` in the recipe."""
    return [key for key in KEYS if value_of(recipe, key) == "auto"]
