"""Starts a run from a loaded recipe: plan, bundle, corpus, launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dsforge.base.errors import DsforgeError
from dsforge.launch.launchers import launcher_of
from dsforge.launch.run import describe_run, launch_run
from dsforge.launch.types import LaunchDescription, LaunchRequest, OnEvent, RunOutcome
from dsforge.ops.bundles import plan_and_bundle, recipe_root
from dsforge.ops.data_check import check_data
from dsforge.ops.weights_check import check_weights
from dsforge.plan.types import Plan
from dsforge.recipe.load import LoadedRecipe


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What a start takes besides the recipe. `allow`: rule codes that only warn, for experiments."""

    runs_root: Path
    command: tuple[str, ...]
    environ: Mapping[str, str]
    allow: frozenset[str] = frozenset()
    extra_environ: Mapping[str, str] = field(default_factory=dict)


def start(loaded: LoadedRecipe, options: StartOptions, on_event: OnEvent) -> tuple[Plan, RunOutcome]:
    """Launch a recipe and supervise it to its end; DsforgeError before anything starts."""
    request = prepare(loaded, options)
    return request.plan, launch_run(request, on_event)


def prepare(loaded: LoadedRecipe, options: StartOptions) -> LaunchRequest:
    """Return what `start` launches, its data looked at, the built-in corpus made; DsforgeError."""
    request = _request(loaded, options)
    plan = request.plan
    check_data(plan, loaded, recipe_root(loaded))
    check_weights(plan, loaded, recipe_root(loaded))
    if plan.data.builtin_vocab is None:
        return request
    from dsforge.data.prepare import builtin_corpus

    return replace(request, corpus=str(builtin_corpus(plan.data.builtin_vocab)))


def describe(loaded: LoadedRecipe, options: StartOptions) -> LaunchDescription:
    """Return what `start` would run and write on the planned machine, touching nothing.

    What would keep it from starting here is in `refusals`; DsforgeError when a rule refuses the recipe.
    """
    request = _request(loaded, options)
    described = describe_run(request)
    try:
        check_data(request.plan, loaded, recipe_root(loaded))
        check_weights(request.plan, loaded, recipe_root(loaded))
    except DsforgeError as error:
        return replace(described, refusals=(error, *described.refusals))
    return described


def _request(loaded: LoadedRecipe, options: StartOptions) -> LaunchRequest:
    plan, bundle = plan_and_bundle(loaded, options.allow)
    launcher_of(plan)  # before anything is built or looked for
    return LaunchRequest(
        plan=plan,
        bundle=bundle,
        runs_root=options.runs_root,
        recipe_root=recipe_root(loaded),
        recipe_path=str(loaded.path),
        recipe_text=loaded.text,
        command=options.command,
        environ=options.environ,
        extra_environ=options.extra_environ,
    )
