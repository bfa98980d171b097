"""Starts a run from a loaded recipe: plan, bundle, corpus, launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dsforge.base.errors import DsforgeError, Severity
from dsforge.base.exits import ExitCode
from dsforge.launch.launchers import launcher_of
from dsforge.launch.onlooker import follow_run
from dsforge.launch.run import describe_run, launch_run
from dsforge.launch.submit import describe_submission, is_to_submit, submit_run
from dsforge.launch.types import LaunchDescription, LaunchRequest, OnEvent, RunOutcome
from dsforge.ops.bundles import plan_and_bundle, recipe_root
from dsforge.ops.data_check import check_data
from dsforge.ops.fewer_hosts import changed, changes_without
from dsforge.ops.weights_check import check_weights
from dsforge.plan.resolve import refusal
from dsforge.plan.types import Plan
from dsforge.plan.verdict import memory_findings
from dsforge.recipe.load import LoadedRecipe
from dsforge.records.run_dir import RunDir


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What a start takes besides the recipe. `allow`: rule codes that only warn, for experiments."""

    runs_root: Path
    command: tuple[str, ...]
    environ: Mapping[str, str]
    allow: frozenset[str] = frozenset()
    extra_environ: Mapping[str, str] = field(default_factory=dict)


def start(loaded: LoadedRecipe, options: StartOptions, on_event: OnEvent) -> tuple[Plan, RunOutcome]:
    """Launch a recipe and supervise it to its end, or have a scheduler start it and follow it.

    DsforgeError before anything starts.
    """
    request = prepare(loaded, options)
    if is_to_submit(request):
        return request.plan, follow_run(submit_run(request, on_event), request.plan, on_event)

    def replan(hosts: Sequence[str]) -> LaunchRequest:
        fewer = changed(loaded, changes_without(request.plan, hosts))
        return replace(_request(fewer, options), corpus=request.corpus)

    request = replace(request, replan=replan)
    return request.plan, launch_run(request, on_event, goes_on=True)


def prepare(loaded: LoadedRecipe, options: StartOptions) -> LaunchRequest:
    """Return what `start` launches, its data looked at, the built-in corpus made; DsforgeError."""
    return _ready(loaded, _request(loaded, options))


def submit(loaded: LoadedRecipe, options: StartOptions, on_event: OnEvent) -> RunDir:
    """Have a scheduler start a recipe and return the run's folder; DsforgeError DSF242 if it starts here."""
    request = _request(loaded, options)
    if not is_to_submit(request):
        raise DsforgeError(
            "DSF242",
            "there is no job to leave to itself: this run is supervised from here",
            hint="leave out --detach, or set launch.launcher to slurm or pbs, outside of a job",
            exit_code=ExitCode.USAGE,
        )
    return submit_run(_ready(loaded, request), on_event)


def _ready(loaded: LoadedRecipe, request: LaunchRequest) -> LaunchRequest:
    """Return what to launch, once its data and weights are seen to be there."""
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
    if request.plan.data.builtin_vocab is not None:
        from dsforge.data.corpus import standard_library_files
        from dsforge.data.prepare import builtin_prefix

        prefix = builtin_prefix(request.plan.data.builtin_vocab, standard_library_files())
        request = replace(request, corpus=str(prefix))
    described = (describe_submission if is_to_submit(request) else describe_run)(request)
    try:
        check_data(request.plan, loaded, recipe_root(loaded))
        check_weights(request.plan, loaded, recipe_root(loaded))
    except DsforgeError as error:
        return replace(described, refusals=(error, *described.refusals))
    return described


def _request(loaded: LoadedRecipe, options: StartOptions) -> LaunchRequest:
    plan, bundle = plan_and_bundle(loaded, options.allow)
    _check_memory(loaded, plan, options.allow)
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


def _check_memory(loaded: LoadedRecipe, plan: Plan, allow: frozenset[str]) -> None:
    """Raise DsforgeError DSF750 where the estimate says that the plan does not fit, by its error even."""
    errors = [one for one in memory_findings(loaded, plan, allow=allow) if one.severity is Severity.ERROR]
    if errors:
        raise refusal(errors)
