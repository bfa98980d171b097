"""What a shell offers at TAB: keys and values of recipes, presets, codes, profiles, runs.

Each function gets the words so far and returns what could stand next; typer drops what does not begin with
the word at hand. Nothing here may fail: a recipe that cannot be read has nothing to offer.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dsforge.base.errors import DsforgeError

if TYPE_CHECKING:
    from dsforge.recipe.fields import RecipeField

Offers = list[tuple[str, str]]
"""Words, each with what it means; shells that can show the meaning beside the word."""

VARIABLE = "_DSFORGE_COMPLETE"
"""Set by the shell's script when it asks; typer names it after the program."""


def is_asked() -> bool:
    """Tell whether this process was started by a shell that wants to know what could stand next."""
    return VARIABLE in os.environ


def after_equals(environ: MutableMapping[str, str]) -> None:
    """Turn bash's question about the word `=` into one about the empty word behind it.

    Bash breaks lines at `=` too, and puts what is offered behind the sign, not in its place.
    """
    words, at = environ.get("COMP_WORDS", "").split("\n"), environ.get("COMP_CWORD", "")
    if at == str(len(words) - 1) and words[-1] == "=":
        environ["COMP_CWORD"] = str(len(words))


def keys(ctx: typer.Context, incomplete: str) -> Offers:
    """Offer the keys of a recipe as they are, or, once a value is begun, as `changes`."""
    from dsforge.recipe.fields import fields

    if "=" in incomplete:
        return changes(ctx, incomplete)
    return [(field.key, field.description) for field in fields().values() if field.key.startswith(incomplete)]


def changes(ctx: typer.Context, incomplete: str) -> Offers:
    """Offer the keys of a recipe as `key=`, and the values of the one key that is left."""
    from dsforge.recipe.fields import fields

    words = ctx.params.get("changes") or ctx.params.get("arguments") or ctx.params.get("words")
    given = [*(ctx.params.get("set_") or ()), *(words or ())]
    if given[-1:] == ["="]:  # bash makes `=` a word of its own
        field = fields().get(given[-2]) if len(given) > 1 else None
        return _values(field) if field else []
    key, equals, _ = incomplete.partition("=")
    fitting = [
        field for field in fields().values() if field.key == key or (not equals and field.key.startswith(key))
    ]
    offers = [] if equals else [(f"{field.key}=", field.description) for field in fitting]
    if len(fitting) == 1:
        offers += [(f"{fitting[0].key}={value}", why) for value, why in _values(fitting[0])]
    return offers


def recipes_then_changes(ctx: typer.Context, incomplete: str) -> Offers:
    """Offer changes once a recipe is named; before that the shell's own offer, files."""
    return changes(ctx, incomplete) if ctx.params.get("arguments") else []


def _values(field: RecipeField) -> Offers:
    from dsforge.recipe.yaml_text import flow_text

    named = {"model": models, "cluster.gpu": gpus}.get(field.key)
    if named:
        return named()
    offers = {flow_text(value): "" for value in field.choices}
    if not field.required and isinstance(field.default, str | int | float):
        offers[flow_text(field.default)] = "default"
    return list(offers.items())


def models() -> Offers:
    """Offer model presets and bare sizes."""
    from dsforge.catalog.tables import models as presets
    from dsforge.catalog.tables import sizes

    return [*((name, preset.source) for name, preset in presets().items()), *sizes().items()]


def gpus() -> Offers:
    """Offer the GPUs of the catalogue, and cpu."""
    from dsforge.catalog.tables import hardware

    return [(name, entry.source) for name, entry in hardware().items()]


def rules() -> Offers:
    """Offer the codes of rules."""
    from dsforge.rules.registry import rules as known

    return [(code, rule.name) for code, rule in known().items()]


def codes() -> Offers:
    """Offer every code that a message may carry."""
    from dsforge.catalog.tables import errors

    return [*rules(), *((code, meaning.what) for code, meaning in errors().items())]


def profiles(ctx: typer.Context) -> Offers:
    """Offer the profiles of the recipe that the line names."""
    from dsforge.recipe.document import read_text
    from dsforge.recipe.load import load_recipe

    # Behind an option that still lacks its value the words that would be arguments are left in `args`.
    named = (ctx.params.get("recipe"), ctx.params.get("a"), *(ctx.params.get("arguments") or ctx.args))
    recipe = Path(next((path for path in named if path), ""))
    try:
        loaded = load_recipe(recipe, environ=os.environ, text=read_text(recipe, may_wait=False))
        return [(name, "") for name in loaded.recipe.profiles]
    except (DsforgeError, OSError):
        return []


def runs(ctx: typer.Context) -> Offers:
    """Offer the ids of runs, newest first, and `latest`."""
    from dsforge.cli.options import runs_root
    from dsforge.runs import registry

    chosen = ctx.params.get("runs")
    try:
        found = registry.list_runs(runs_root(Path(chosen) if chosen else None))
    except OSError:
        return []
    return [*((run.run_id, run.state) for run in found), (registry.LATEST, "the run that was started last")]
