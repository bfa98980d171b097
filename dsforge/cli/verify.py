"""`dsforge verify`: does this layout train to the same loss as one plain process?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsforge.base.exits import ExitCode
from dsforge.cli import complete, output
from dsforge.cli.launch import start_options
from dsforge.cli.options import (
    ChangesArgument,
    JsonOption,
    ProfileOption,
    RecipeArgument,
    RunsOption,
    SetOption,
    load,
    plan_warned,
)


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("verify", rich_help_panel=panel)(verify)


def verify(
    recipe: RecipeArgument,
    changes: ChangesArgument = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    steps: Annotated[int, typer.Option(min=5, max=1000, help="Steps to compare.")] = 20,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="A rule code to force past, to see what it protects from.", autocompletion=complete.rules
        ),
    ] = None,
    max_ranks: Annotated[int | None, typer.Option(min=1, help="Most ranks to start.")] = None,
    references: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps what one process computed, for other layouts of the model."),
    ] = None,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Train the shrunken layout and a plain one-process reference on the same data; compare losses."""
    from dsforge.cli.progress import Progress
    from dsforge.ops.machine_room import max_cpu_ranks
    from dsforge.ops.verify import verify as run_verify
    from dsforge.plan.words import not_exercised

    loaded = load(recipe, changes, set_, profile, json=json)
    plan_warned(loaded, allow or ())
    result = run_verify(
        loaded,
        start_options(runs, allow),
        Progress(steps),
        max_ranks=max_ranks or max_cpu_ranks(),
        steps=steps,
        references=references,
    )
    if json:
        output.as_json(result.as_dict())
    else:
        for change in result.changes:
            output.line(f"changed {change.key}: {change.recipe} -> {change.used} ({change.why})")
        layout = " ".join(f"{key}={value}" for key, value in result.layout.items())
        output.line(f"layout {layout}")
        output.line(f"clipped {result.clipped_steps} of {result.steps} steps")
        if result.max_abs_validation_diff is not None:
            output.line(f"largest validation loss difference {result.max_abs_validation_diff:.2e}")
        if result.max_abs_param_diff is not None:
            output.line(f"largest parameter difference {result.max_abs_param_diff:.2e}")
        for call in result.close_calls:
            output.line(f"rounding chose between two experts at {call.told()}: compared with the other one")
        verdict = "same" if result.passed else "undecided" if result.undecided else "NOT the same"
        output.line(f"{verdict}{not_exercised(result.not_exercised)}: {result.why}")
    raise typer.Exit(int(ExitCode.OK if result.passed else ExitCode.FINDINGS))
