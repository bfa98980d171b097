"""`dsforge smoke`: a recipe's topology, shrunk to this machine, trained and judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dsforge.cli import output
from dsforge.cli.launch import start_options
from dsforge.cli.options import (
    ArgumentOption,
    ChangesArgument,
    JsonOption,
    PassingOn,
    ProfileOption,
    RecipeArgument,
    RunsOption,
    SetOption,
    load,
)

if TYPE_CHECKING:
    from dsforge.ops.shrink import Change


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("smoke", cls=PassingOn, rich_help_panel=panel)(smoke)


def smoke(
    recipe: RecipeArgument,
    changes: ChangesArgument = None,
    set_: SetOption = None,
    argument: ArgumentOption = None,
    profile: ProfileOption = None,
    steps: Annotated[int, typer.Option(min=12, max=1000, help="Steps to train.")] = 20,
    max_ranks: Annotated[
        int | None, typer.Option(min=1, help="Most ranks to start. Default: what cores and memory hold.")
    ] = None,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Shrink a recipe, keep its layout, train it here for a minute, and pass or fail."""
    from dsforge.cli.progress import Progress
    from dsforge.ops.machine_room import max_cpu_ranks
    from dsforge.ops.smoke import smoke as run_smoke

    loaded = load(recipe, changes, set_, profile, argument, json=json)
    result = run_smoke(
        loaded,
        start_options(runs),
        Progress(steps),
        _no_word if json else _print_changes,
        max_ranks=max_ranks or max_cpu_ranks(),
        steps=steps,
    )
    if json:
        output.as_json(result.as_dict())
    else:
        layout = result.layout
        output.line(
            f"layout TP {layout['tp']} x PP {layout['pp']} x DP {layout['dp']}, ZeRO-{layout['zero']}"
        )
        for check in result.checks:
            output.line(f"{'pass' if check.passed else 'FAIL'}  {check.name}: {check.seen}")
        output.line(f"{'passed' if result.passed else 'failed'}; records in {result.run_dir}")
    raise typer.Exit(result.exit_code)


def _no_word(_changes: Sequence[Change]) -> None:
    """Under --json the changes are in the result."""


def _print_changes(changes: Sequence[Change]) -> None:
    for change in changes:
        output.line(f"shrunk {change.key}: {change.recipe} -> {change.used} ({change.why})")
    output.flush()
