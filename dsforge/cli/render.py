"""`dsforge render`: write the bundle, or check that a committed one is still true."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.cli import output
from dsforge.cli.options import (
    ArgumentOption,
    ChangesArgument,
    JsonOption,
    PassingOn,
    ProfileOption,
    RecipeArgument,
    SetOption,
    load_sealed,
)


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("render", cls=PassingOn, rich_help_panel=panel)(render)


def render(
    recipe: RecipeArgument,
    changes: ChangesArgument = None,
    set_: SetOption = None,
    argument: ArgumentOption = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the files.")] = Path("bundle"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 when the folder differs.")
    ] = False,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Write DeepSpeed JSON, hostfile, environment, launch script and plan into a folder."""
    from dsforge.ops.bundles import bundle_of

    if str(out) in ("", "."):
        raise DsforgeError("DSF048", "the working directory is no bundle", hint="name a folder with --out")
    made = bundle_of(load_sealed(recipe, changes, set_, profile, argument, json=json))
    drift = made.drift(out) if check else []
    if not check:
        made.write(out)
    if json:
        output.as_json({"folder": str(out), "files": sorted(made.files), "drift": drift})
    else:
        for name in drift:
            output.note(f"differs: {out / name}")
        for name in sorted(made.files) if not check else ():
            output.line(str(out / name))
    raise typer.Exit(int(ExitCode.FINDINGS if drift else ExitCode.OK))
