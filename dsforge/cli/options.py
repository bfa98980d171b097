"""Arguments that many commands share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from dsforge.base.errors import DsforgeError, Finding, Place
from dsforge.cli import complete, output

if TYPE_CHECKING:
    from typer._click import Context  # the type of the method below; typer exports no other

    from dsforge.plan.types import Plan
    from dsforge.recipe.load import LoadedRecipe

RecipeArgument = Annotated[Path, typer.Argument(help="The recipe, a YAML file.", show_default=False)]
ChangesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Changes, such as batch.micro=4.",
        show_default=False,
        autocompletion=complete.changes,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A change, as behind the recipe; may be repeated.",
        autocompletion=complete.changes,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", help="A profile of the recipe.", autocompletion=complete.profiles),
]
ArgumentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--argument",
        metavar="WORD",
        help="A word for the program of `trainer: external`, as behind `--`; may be repeated.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class Goal(StrEnum):
    """What the best layout has least of."""

    time = "time"
    cost = "cost"
    memory = "memory"


ObjectiveOption = Annotated[
    Goal,
    typer.Option("--objective", help="What the best has least of; cost: GPU-hours, on fewer nodes, too."),
]


class Estimate(StrEnum):
    """What an estimate alone refuses: it may be wrong, so that it can be passed."""

    memory = "DSF750"


AllowOption = Annotated[
    list[Estimate] | None,
    typer.Option("--allow", help="Start though the memory estimate says that it does not fit."),
]
RunsOption = Annotated[
    Path | None, typer.Option("--runs", help="Folder of runs. Default: $DSFORGE_RUNS or ./runs.")
]


class PassingOn(TyperCommand):
    """A command whose words behind `--` are the external program's, each an `--argument`."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the words of a command line."""
        if "--" in args:
            at = args.index("--")
            args = [*args[:at], *(f"--argument={word}" for word in args[at + 1 :])]
        return super().parse_args(ctx, args)


def runs_root(chosen: Path | None) -> Path:
    """Return the folder of runs: the option, $DSFORGE_RUNS, or ./runs."""
    from dsforge.runs import registry

    return chosen.absolute() if chosen else registry.runs_root(os.environ)


def load(
    recipe: Path,
    changes: list[str] | None,
    set_: list[str] | None,
    profile: str | None,
    arguments: list[str] | None = None,
    *,
    json: bool = False,
) -> LoadedRecipe:
    """Load a recipe as a command was told to, with what the environment changes in it."""
    from dsforge.recipe.load import load_recipe

    if json:
        output.use_json()
    return load_recipe(
        recipe, [*(changes or ()), *(set_ or ())], profile, arguments or (), environ=os.environ
    )


def load_sealed(
    recipe: Path,
    changes: list[str] | None,
    set_: list[str] | None,
    profile: str | None,
    arguments: list[str] | None = None,
    *,
    json: bool = False,
) -> LoadedRecipe:
    """Load a recipe for files that are kept: the same on every machine, whatever its environment.

    DsforgeError DSF024 when the environment asks for changes, rather than to ignore them.
    """
    from dsforge.recipe.environment import change_variables
    from dsforge.recipe.load import load_recipe

    if json:
        output.use_json()
    asked = change_variables(os.environ)
    if asked:
        raise DsforgeError(
            "DSF024",
            "the environment would change the recipe, and this command depends on the recipe alone",
            Place(file=f"environment variable `{asked[0]}`"),
            "unset it, or give the change as an argument: key=value",
        )
    return load_recipe(recipe, [*(changes or ()), *(set_ or ())], profile, arguments or ())


def plan_warned(loaded: LoadedRecipe, allow: Iterable[str] = ()) -> Plan:
    """Return the plan of a recipe that is about to run, having told on stderr what its rules warn of.

    `allow`: codes of rules that only warn. DsforgeError when one refuses the recipe.
    """
    from dsforge.plan.resolve import make_plan

    plan = make_plan(loaded, frozenset(code.upper() for code in allow))
    output.findings(Finding.from_dict(found) for found in plan.findings)
    return plan
