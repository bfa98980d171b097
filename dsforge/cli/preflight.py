"""`dsforge preflight`: look at all hosts of a recipe before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dsforge.base import shell
from dsforge.base.exits import ExitCode
from dsforge.base.text import counted
from dsforge.base.units import format_bytes
from dsforge.cli import output
from dsforge.cli.launch import start_options
from dsforge.cli.options import (
    AllowOption,
    ChangesArgument,
    JsonOption,
    ProfileOption,
    RecipeArgument,
    RunsOption,
    SetOption,
    load,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsforge.base.errors import Finding
    from dsforge.launch.building import Builds
    from dsforge.ops.preflight import Preflight
    from dsforge.recipe.load import LoadedRecipe

_MOST_ALIKE = 3
"""Findings of one kind that are shown in full: of 2,048 hosts without a package three say it all."""


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("preflight", rich_help_panel=panel)(preflight)


def preflight(
    recipe: RecipeArgument,
    changes: ChangesArgument = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Without the sum over all ranks; so does `launch`.")
    ] = False,
    exclude_failed: Annotated[
        bool,
        typer.Option(
            "--exclude-failed", help="Plan anew without the hosts that fail, if the recipe allows it."
        ),
    ] = False,
    build: Annotated[
        bool, typer.Option("--build", help="Compile kernels once a host, and clear locks of killed builds.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, max=600, help="Seconds that a host has for an answer.")
    ] = 30.0,
    allow: AllowOption = None,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Look at all hosts of a recipe at once, and sum over all its ranks. Exit 1 when it would not run."""
    from dsforge.ops.preflight import preflight as run_preflight
    from dsforge.ops.preflight import without_failed

    def loaded(more: Sequence[str] = ()) -> LoadedRecipe:
        return load(recipe, changes, [*(set_ or ()), *more], profile, json=json)

    options = start_options(runs, allow)
    if build:
        output.note("kernels that a host lacks are compiled there, which takes minutes the first time")
    result = run_preflight(loaded(), options, timeout, quick=quick, build=build)
    if exclude_failed and not result.passed:
        result = without_failed(result, loaded, options, timeout, quick=quick, build=build)
    output.findings(_fewer(result.findings))
    if json:
        output.as_json(result.as_dict())
    else:
        _print(result)
    raise typer.Exit(int(ExitCode.OK if result.passed else ExitCode.FINDINGS))


def _fewer(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, of those that differ in their hosts alone the first few, the last with a count."""
    from dataclasses import replace

    kinds: dict[tuple[str, str], list[Finding]] = {}
    for one in findings:
        host = one.place.host if one.place is not None else None
        kinds.setdefault((one.code, one.message.replace(host or "\0", "")), []).append(one)
    shown = []
    for alike in kinds.values():
        more = len(alike) - _MOST_ALIKE
        if more > 0:
            last = alike[_MOST_ALIKE - 1]
            alike[_MOST_ALIKE - 1] = replace(last, message=f"{last.message}; {more} more hosts likewise")
        shown += alike[:_MOST_ALIKE]
    return shown


def _print_builds(builds: Builds) -> None:
    for one in builds.hosts:
        done = one.built
        for lock in done.removed if done else ():
            output.line(f"{one.host}: removed a lock that a killed build left: {lock}")
        if done and done.built:
            output.line(f"{one.host}: built {', '.join(done.built)} in {done.seconds:.0f} s")
    if not builds.needed:
        output.line("nothing is to be built: these ranks run no kernel that is compiled at their start")
    elif not any(one.built and one.built.built for one in builds.hosts):
        output.line(f"nothing was built: {', '.join(builds.needed)}")


def _print(result: Preflight) -> None:
    rows = []
    for host in result.as_dict()["hosts"]:
        gpus = f"{len(host['gpus'])} x {host['gpus'][0]}" if host.get("gpus") else "-"
        known = host["answered"]
        memory = format_bytes(host["memory_bytes"]) if known else "-"
        address = (host["address"] or "-") if known else "-"
        state = "ok" if host["passed"] else "failed" if known else "no answer"
        rows.append((host["host"], host.get("name", "-"), address, gpus, memory, state))
    output.table("", ("host", "name", "address", "GPUs", "memory", "state"), rows)
    if result.builds is not None:
        _print_builds(result.builds)
    sums = result.all_reduce
    if sums is not None:
        output.line(
            f"all-reduce of {format_bytes(sums.bytes)} over {counted(sums.ranks, 'rank')}: "
            f"{sums.seconds * 1000:.1f} ms, {format_bytes(sums.bytes_per_second)}/s a rank"
        )
    if result.left_out:
        output.line(
            f"without {', '.join(result.left_out)}: dsforge launch RECIPE {shell.join(result.changes)}"
        )
    errors = sum(one.severity.value == "error" for one in result.findings)
    warnings = len(result.findings) - errors
    output.line(
        f"{counted(len(result.hosts), 'host')}: {counted(errors, 'error')}, {counted(warnings, 'warning')}; "
        + ("ready to launch" if result.passed else "it would not run")
    )
