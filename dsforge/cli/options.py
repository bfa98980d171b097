"""Arguments that many commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsforge.cli import output

if TYPE_CHECKING:
    from dsforge.recipe.load import LoadedRecipe

RecipeArgument = Annotated[Path, typer.Argument(help="The recipe, a YAML file.", show_default=False)]
ChangesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes, such as batch.micro=4.", show_default=False),
]
ProfileOption = Annotated[str | None, typer.Option("--profile", help="A profile of the recipe.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
RunsOption = Annotated[
    Path | None, typer.Option("--runs", help="Folder of runs. Default: $DSFORGE_RUNS or ./runs.")
]


def runs_root(chosen: Path | None) -> Path:
    """Return the folder of runs: the option, $DSFORGE_RUNS, or ./runs."""
    from dsforge.runs import registry

    return chosen.absolute() if chosen else registry.runs_root(os.environ)


def load(recipe: Path, changes: list[str] | None, profile: str | None, *, json: bool = False) -> LoadedRecipe:
    """Load a recipe as a command was told to."""
    from dsforge.recipe.load import load_recipe

    if json:
        output.use_json()
    return load_recipe(recipe, changes or (), profile)
