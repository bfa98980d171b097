"""A recipe's open layout becomes a fixed one: the best that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dsforge.base.errors import Finding, Severity
from dsforge.base.units import format_bytes
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.tables import Hardware
from dsforge.layout.shape import Shape
from dsforge.plan.job import Measured
from dsforge.plan.program import engine_of
from dsforge.plan.search.best import Objective
from dsforge.plan.search.candidate import KEYS, Candidate
from dsforge.plan.search.run import known_of, open_keys, search, searcher
from dsforge.plan.types import Decision
from dsforge.recipe.model import Recipe
from dsforge.recipe.settled import SIMPLEST, SettledRecipe, left_open, settled

_BEST = {"time": "fastest", "cost": "fastest", "memory": "smallest"}


def settle(
    recipe: Recipe,
    shape: Shape,
    hardware: Hardware,
    objective: Objective = "time",
    best: Candidate | None = None,
) -> tuple[SettledRecipe, list[Decision], Finding | None]:
    """Return a recipe with nothing left open, why, and what is wrong where no layout can be found.

    `best`: what a search has found already.

    One `auto` of SIMPLEST opens the ZeRO stage and the micro-batch to the search, too; these two alone keep
    to the simple rules of plan/auto.py. Reasons hold no figures: a better fit of the cost model that chooses
    the same changes no file.
    """
    left = left_open(recipe)
    if left in ([], ["parallel.schedule"]):
        schedule = "1f1b" if recipe.parallel.vp == 1 else "interleaved"
        return _with(recipe, dict.fromkeys(left, schedule), "virtual stages are what interleaving is for")
    known = known_of(recipe, hardware)
    if isinstance(known, str):
        return _with(recipe, {key: SIMPLEST[key] for key in left}, f"the simplest: {known}")
    if best is None:
        found = search(recipe, shape, hardware, known, objective=objective).found
        best = found[0].candidate if found else None
    if best is not None:
        values = best.values()
        why = f"the {_BEST[objective]} layout that fits, by the cost model"
        chosen = {key: values[key] for key in open_keys(recipe)}
        if best.schedule != recipe.parallel.schedule:  # not set either, where virtual stages were chosen
            chosen["parallel.schedule"] = best.schedule
        return _with(recipe, chosen, why)
    simplest = {key: SIMPLEST[key] for key in left}
    return settled(recipe, simplest), [], nothing_found(recipe, shape, hardware, known, left[0])


def _with(
    recipe: Recipe, chosen: dict[str, Any], why: str
) -> tuple[SettledRecipe, list[Decision], Finding | None]:
    honours = capabilities(engine_of(recipe)).honours
    decisions = []
    for key, value in chosen.items():
        only = key in honours and len(honours[key].values) == 1
        reason = f"the only value: {honours[key].why}" if only else why
        decisions.append(Decision(key=key, value=value, why=reason))
    return settled(recipe, chosen), decisions, None


def _more_open(recipe: Recipe) -> str:
    """Return what else there is to do where keys are fixed that a search could choose."""
    if len(open_keys(recipe)) == len(KEYS):
        return " or a smaller model"
    return ", or `auto` for more keys: `dsforge plan --search` leaves all of them open"


def nothing_found(recipe: Recipe, shape: Shape, hardware: Hardware, known: Measured, key: str) -> Finding:
    """Return that no layout is left, with the least memory that a legal one takes."""
    anyhow = replace(hardware, memory_bytes=None)
    least = search(recipe, shape, anyhow, known, objective="memory")
    if least.found:
        size, room = format_bytes(least.found[0].memory_bytes), format_bytes(hardware.memory_bytes or 0)
        return Finding(
            "DSF770",
            Severity.ERROR,
            f"no layout fits: the smallest takes {size} of {room}, less {least.memory_error:.0%} for the "
            "estimate's error",
            key,
            hint=f"more GPUs{_more_open(recipe)}",
        )
    made = searcher(recipe, shape, hardware, known, recipe.cluster.nodes)
    fault = made.first_fault()
    told = f": {fault.message} ({fault.code})" if fault else ""
    return Finding(
        "DSF771",
        Severity.ERROR,
        f"no legal layout of {recipe.cluster.nodes * recipe.cluster.gpus_per_node} GPUs{told}",
        fault.key if fault and fault.key else key,
        hint="other numbers of GPUs or samples a step, or `auto` for more keys",
    )
