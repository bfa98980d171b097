"""`dsforge lock`: freeze what a recipe stands for today."""

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
    app.command("lock", cls=PassingOn, rich_help_panel=panel)(lock)


def lock(
    recipe: RecipeArgument,
    changes: ChangesArgument = None,
    set_: SetOption = None,
    argument: ArgumentOption = None,
    profile: ProfileOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write. Default: RECIPE with .lock at its end.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 when the lock is not what it would be now.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write the resolved plan, versions and hashes of the bundle; `launch --locked` holds a run to them."""
    from dsforge.base.files import write_atomically
    from dsforge.ops.lock import default_lock_path, enforce, make_lock, read_lock

    made = make_lock(load_sealed(recipe, changes, set_, profile, argument, json=json))
    path = out or default_lock_path(recipe)
    if check:
        enforce(read_lock(path), made, path)
    else:
        try:
            write_atomically(path, made.to_json())
        except OSError as error:
            raise DsforgeError(
                "DSF066", f"cannot write {path}: {error.strerror}", exit_code=ExitCode.ENVIRONMENT
            ) from None
    if json:
        output.as_json(
            {
                "lock": str(path),
                "plan_sha256": made.plan_sha256,
                "bundle": made.bundle,
                "versions": made.versions,
            }
        )
    else:
        output.line(f"{path}: {'is current' if check else 'written'}, plan {made.plan_sha256[:12]}")
