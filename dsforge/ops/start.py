"""Starts a run from a loaded recipe: plan, bundle, corpus, launch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dsforge.launch.run import describe_run, launch_run
from dsforge.launch.types import LaunchDescription, LaunchRequest, OnEvent, RunOutcome
from dsforge.ops.bundles import plan_and_bundle, recipe_root
from dsforge.ops.data_check import check_data
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
    with _request(loaded, options, make_corpus=True) as request:
        return request.plan, launch_run(request, on_event)


def describe(loaded: LoadedRecipe, options: StartOptions) -> LaunchDescription:
    """Return what `start` would run and write, having touched nothing but a temporary folder."""
    with _request(loaded, options, make_corpus=False) as request:
        return describe_run(request)


@contextmanager
def _request(loaded: LoadedRecipe, options: StartOptions, *, make_corpus: bool) -> Iterator[LaunchRequest]:
    plan, bundle = plan_and_bundle(loaded, options.allow)
    check_data(plan, loaded, recipe_root(loaded))
    corpus = None
    if plan.data.builtin_vocab is not None and make_corpus:
        from dsforge.data.prepare import builtin_corpus

        corpus = str(builtin_corpus(plan.data.builtin_vocab))
    with tempfile.TemporaryDirectory(prefix="dsforge-bundle-") as folder:
        bundle.write(Path(folder))
        yield LaunchRequest(
            plan=plan,
            bundle=Path(folder),
            runs_root=options.runs_root,
            recipe_root=recipe_root(loaded),
            recipe_path=str(loaded.path),
            recipe_text=loaded.text,
            command=options.command,
            environ=options.environ,
            corpus=corpus,
            extra_environ=options.extra_environ,
        )
