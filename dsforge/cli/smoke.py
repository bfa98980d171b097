"""`dsforge smoke`: a recipe's topology, shrunk to this machine, trained and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dsforge.base.text import counted
from dsforge.base.units import format_seconds
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
    plan_warned,
)

if TYPE_CHECKING:
    from dsforge.ops.shrink import Shrunk


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
    from dsforge.plan.words import not_exercised, product

    loaded = load(recipe, changes, set_, profile, argument, json=json)
    plan_warned(loaded)
    result = run_smoke(
        loaded,
        start_options(runs),
        Progress(steps),
        _print_ranks if json else _print_changes,
        max_ranks=max_ranks or max_cpu_ranks(),
        steps=steps,
    )
    if json:
        output.as_json(result.as_dict())
    else:
        layout = result.layout
        output.line(f"layout {product(layout)}, ZeRO-{layout['zero']}")
        for check in result.checks:
            output.line(f"{'pass' if check.passed else 'FAIL'}  {check.name}: {check.seen}")
        verdict = "passed" if result.passed else "failed"
        output.line(f"{verdict}{not_exercised(result.not_exercised)}; records in {result.run_dir}")
    raise typer.Exit(result.exit_code)


def _print_changes(small: Shrunk) -> None:
    for change in small.changes:
        output.line(f"shrunk {change.key}: {change.recipe} -> {change.used} ({change.why})")
    output.flush()
    _print_ranks(small)


def _print_ranks(small: Shrunk) -> None:
    """Say on stderr what is about to start; under --json the changes are in the result."""
    from dsforge.ops.machine_room import cores, start_up_seconds

    output.note(
        f"starting {counted(small.ranks, 'rank')} on {counted(cores(), 'core')} "
        "(--max-ranks N starts fewer): start-up alone takes "
        f"about {format_seconds(start_up_seconds(small.ranks))} on idle cores, and again for the reload"
    )
