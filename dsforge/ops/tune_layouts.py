"""Which layouts of a recipe are worth a try, each as a recipe that trains a few steps of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.tables import Hardware
from dsforge.layout.shape import Shape
from dsforge.ops.fewer_hosts import changed
from dsforge.plan.measurements import values_of
from dsforge.plan.program import engine_of, with_defaults
from dsforge.plan.ranking import ranking
from dsforge.plan.resolve import look_up, make_plan, refusal
from dsforge.plan.search.run import known_of
from dsforge.plan.search.space import Space
from dsforge.recipe.load import LoadedRecipe
from dsforge.recipe.settled import left_open
from dsforge.recipe.yaml_text import flow_text

_BY_SIMPLE_RULES = ("parallel.zero", "batch.micro")
"""What follows from the degrees where nothing is known to choose by."""
_SHORT = (
    *("train.tokens=null", "train.eval_every=0", "train.eval_samples=null", "optimizer.warmup_steps=0"),
    *("checkpoint.at_end=false", "checkpoint.every_steps=0", "checkpoint.resume=never"),
    *("checkpoint.dir=null", "checkpoint.init=null"),
    *("launch.restarts=0", "launch.shrink=false", "launch.stop_timeout=1s"),
    *("monitor.tensorboard=false", "monitor.wandb=false", "monitor.prometheus=false"),
)
"""What makes of a recipe a run that is all steps, with nothing saved, resumed or validated.

Who stops it does not wait for the checkpoint of a large model, either.
"""


@dataclass(frozen=True, slots=True)
class Layouts:
    """What to try, by the recipe's keys, the most promising first; `unranked`: why nothing is predicted."""

    values: tuple[dict[str, Any], ...]
    unranked: str | None = None


def layouts_to_try(loaded: LoadedRecipe, top: int) -> Layouts:
    """Return the best layouts of what a recipe leaves open.

    Where no cost model knows the machine: the legal ones, those that split a replica over fewer ranks first.
    DsforgeError DSF799 where there is nothing to choose.
    """
    recipe, _ = with_defaults(loaded.recipe)
    if recipe.trainer == "external":
        message, hint = "an external program is not tuned", "a trainer of dsforge, such as `trainer: forge`"
        raise DsforgeError("DSF799", message, loaded.place("trainer"), hint, exit_code=ExitCode.FINDINGS)
    if not left_open(recipe):
        raise DsforgeError(
            "DSF799",
            "the recipe fixes the layout: no degree, recomputation or offload in it is `auto`",
            loaded.place("parallel"),
            "`--search` leaves all open, `parallel.tp=auto` one key",
            exit_code=ExitCode.FINDINGS,
        )
    shape, hardware, problems = look_up(loaded)
    if shape is None or hardware is None:
        raise refusal(problems)
    known = known_of(recipe, hardware)
    unranked = known if isinstance(known, str) else None
    if unranked is None:
        values = [one.candidate.values() for one in ranking(loaded, top=top, objective="time").found]
    else:
        values = list(_unranked(loaded, shape, hardware, top))
    if not values:
        make_plan(loaded)  # says why there is none
        raise DsforgeError("DSF799", "no layout is legal", loaded.place("parallel"), "`auto` for more keys")
    return Layouts(tuple(values), unranked)


def _unranked(loaded: LoadedRecipe, shape: Shape, hardware: Hardware, top: int) -> Iterator[dict[str, Any]]:
    recipe, _ = with_defaults(loaded.recipe)
    space = Space(recipe, shape, hardware, capabilities(engine_of(recipe)), recipe.cluster.nodes)
    by_degrees = {one.degrees: one for one in reversed([*space.starts()])}
    found = 0
    for one in sorted(by_degrees.values(), key=lambda one: (one.tp * one.pp * one.cp, one.degrees)):
        chosen = one.values()
        for key in _BY_SIMPLE_RULES:
            section, name = key.split(".")
            chosen[key] = getattr(getattr(recipe, section), name)
        try:
            plan = make_plan(pinned(loaded, chosen))
        except DsforgeError:
            continue
        yield values_of(plan)
        found += 1
        if found == top:
            return


def pinned(loaded: LoadedRecipe, values: Mapping[str, Any]) -> LoadedRecipe:
    """Return a recipe with the values of a layout; DsforgeError where they make none."""
    return changed(loaded, [f"{key}={flow_text(value)}" for key, value in values.items()])


def short_run(loaded: LoadedRecipe, values: Mapping[str, Any], steps: int) -> LoadedRecipe:
    """Return what trains a few steps of a layout and leaves no checkpoint; DsforgeError."""
    no_validation = ["data.valid=null"] if loaded.recipe.data is not None else []
    short = changed(loaded, [*_SHORT, *no_validation, f"train.steps={steps}"])
    return pinned(short, values)
