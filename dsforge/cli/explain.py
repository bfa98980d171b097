"""`dsforge explain`: where a value came from, and why a layout was not chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsforge.cli import complete, output
from dsforge.cli.options import (
    Goal,
    JsonOption,
    ObjectiveOption,
    ProfileOption,
    RecipeArgument,
    SetOption,
    load,
)

if TYPE_CHECKING:
    from dsforge.plan.ranking import Verdict


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("explain", rich_help_panel=panel)(explain)


def explain(
    recipe: RecipeArgument,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY]... [KEY=VALUE]...",
            help="Keys such as parallel.tp, or sections; changes, such as batch.micro=4.",
            show_default=False,
            autocompletion=complete.keys,
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option("--layout", metavar="NAME=VALUE,...", help="Why not this layout, such as tp=8,pp=4."),
    ] = None,
    set_: SetOption = None,
    profile: ProfileOption = None,
    objective: ObjectiveOption = Goal.time,
    json: JsonOption = False,
) -> None:
    """Say where values came from, why the planner chose them, and what became of another layout."""
    from dsforge.ops.explain import explained, layout_of
    from dsforge.plan.ranking import Judge
    from dsforge.recipe.yaml_text import flow_text

    keys = [word for word in words or () if "=" not in word]
    loaded = load(recipe, [word for word in words or () if "=" in word], set_, profile, json=json)
    values = explained(loaded, keys, objective.value) if keys or layout is None else []
    verdict = Judge(loaded, objective.value).verdict(layout_of(layout)) if layout is not None else None
    if json:
        told: dict[str, Any] = {"values": [one.as_dict() for one in values]}
        output.as_json({**told, "layout": verdict.as_dict() if verdict else None})
        return
    for one in values:
        output.line(f"{one.key}: {flow_text(one.value)}")
        output.line(f"  from     {one.origin}")
        if one.why is not None:
            output.line(f"  because  {one.why}")
        for value, other in one.others:
            output.line(f"  not {flow_text(value)}: {_told(other)}")
    if verdict is not None:
        output.line(_told(verdict))


def _told(verdict: Verdict) -> str:
    code = f"{verdict.code} " if verdict.code else ""
    return f"{code}{verdict.kind}: {verdict.message}"
