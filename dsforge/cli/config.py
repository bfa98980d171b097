"""`dsforge config`: what a recipe amounts to, and older recipes in the newest version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsforge.cli import output
from dsforge.cli.options import ChangesArgument, JsonOption, ProfileOption, RecipeArgument, SetOption, load
from dsforge.cli.panels import PanelGroup

app = typer.Typer(
    help="A recipe resolved, with origins; older recipes rewritten.", cls=PanelGroup, no_args_is_help=True
)


@app.command("show")
def show(
    recipe: RecipeArgument,
    changes: ChangesArgument = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value came from.")] = False,
    json: JsonOption = False,
) -> None:
    """Print every value of a recipe, defaults too, as YAML that loads again.

    Layers, weakest first: defaults < preset < extends < recipe < profile < environment
    (DSFORGE__BATCH__MICRO=2) < arguments (--set, KEY=VALUE).
    """
    from dsforge.ops import origins
    from dsforge.recipe.resolved import resolved_data

    loaded = load(recipe, changes, set_, profile, json=json)
    if json:
        resolved = resolved_data(loaded.recipe)
        output.as_json(
            {"recipe": resolved, "precedence": origins.PRECEDENCE, "values": origins.values(loaded)}
        )
        return
    lines = origins.lines(loaded)
    if origin:
        output.line(f"# {origins.PRECEDENCE}")
    width = max(len(one.text) for one in lines if one.origin) if origin else 0
    for one in lines:
        noted = f"{one.text.ljust(min(width, 60))}  # {one.origin}" if origin and one.origin else one.text
        output.line(noted)


@app.command("migrate")
def migrate(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a YAML file.", show_default=False)],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "--dryrun", help="Print the difference; write nothing.")
    ] = False,
) -> None:
    """Rewrite a recipe of an older version to the newest, comments kept; print the difference."""
    from dsforge.base.files import write_atomically
    from dsforge.recipe.document import read_text
    from dsforge.recipe.edit import unified_diff
    from dsforge.recipe.migrate import migrate as rewrite

    before = read_text(recipe)
    done = rewrite(before, str(recipe))
    if done.text == before:
        output.note(f"{recipe} has version {done.to_version} already, the newest")
        return
    if not dry_run:
        target = recipe.resolve()
        write_atomically(target, done.text, mode=target.stat().st_mode & 0o777)
    output.data(unified_diff(before, done.text, str(recipe)))
    for summary in done.summaries:
        output.note(summary)
