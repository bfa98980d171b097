"""`dsforge validate`: check recipes, no GPU and no torch needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dsforge.base.errors import DsforgeError, Finding, Severity
from dsforge.base.exits import ExitCode
from dsforge.cli import complete, output
from dsforge.cli.options import JsonOption, ProfileOption, SetOption


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("validate", rich_help_panel=panel)(validate)


def validate(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE... [KEY=VALUE]...",
            help="Recipes, then changes for all of them.",
            autocompletion=complete.recipes_then_changes,
        ),
    ],
    set_: SetOption = None,
    profile: ProfileOption = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Write the edits that mend errors into the files; show them.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check recipes against schema and rules. Exit 1 on errors, 2 when one cannot be read."""
    changes = [word for word in arguments if "=" in word and not _is_file(word)]
    recipes = [Path(word) for word in arguments if word not in changes]
    if not recipes:
        raise DsforgeError("DSF022", "no recipe named", hint="`dsforge validate recipe.yaml`")
    worst = 0
    results = []
    for recipe in recipes:
        wanted = [*changes, *(set_ or ())]
        difference = _mend(recipe, wanted, profile) if fix else ""
        found, code = _check(recipe, wanted, profile)
        worst = max(worst, code)
        result = {"recipe": str(recipe), "ok": code == 0, "findings": [one.as_dict() for one in found]}
        results.append({**result, "diff": difference} if fix else result)
        if not json:
            output.data(difference)
            output.findings(found)
            output.line(f"{recipe}: {'ok' if code == 0 else 'refused'}")
    if json:
        output.as_json({"ok": worst == 0, "recipes": results})
    raise typer.Exit(worst)


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # too long a word for a file's name, or a folder that may not be entered
        return False


def _mend(recipe: Path, changes: Sequence[str], profile: str | None) -> str:
    """Write what mends a recipe and return the difference; what cannot be read is told by the check."""
    from dsforge.base.files import write_atomically
    from dsforge.ops.mend import mend
    from dsforge.recipe.edit import unified_diff

    try:
        mended = mend(recipe, changes, profile, os.environ)
    except DsforgeError:
        return ""
    if mended.after != mended.before:
        target = recipe.resolve()
        write_atomically(target, mended.after, mode=target.stat().st_mode & 0o777)
    return unified_diff(mended.before, mended.after, str(recipe))


def _check(recipe: Path, changes: Sequence[str], profile: str | None) -> tuple[list[Finding], int]:
    from dsforge.plan.resolve import examine
    from dsforge.recipe.load import load_recipe

    try:
        found = examine(load_recipe(recipe, changes, profile, environ=os.environ))
    except DsforgeError as fault:
        first = Finding(fault.code, Severity.ERROR, fault.message, None, fault.place, fault.hint)
        return [first, *fault.findings], int(fault.exit_code)
    errors = any(one.severity is Severity.ERROR for one in found)
    return found, int(ExitCode.FINDINGS if errors else ExitCode.OK)
