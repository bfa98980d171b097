"""Values of recipes as a flavour's mapping gets them, and an argparse parser built from an option table."""

from __future__ import annotations

import argparse
from typing import Any

from dsforge.external.options import option_table
from dsforge.plan.auto import resolve_autos
from dsforge.plan.program import values_of, with_defaults
from dsforge.plan.resolve import look_up
from dsforge.recipe.load import LoadedRecipe
from tests.support.recipes import loaded

GPT = {
    "arch": "gpt",
    "layers": 4,
    "hidden": 64,
    "heads": 4,
    "vocab": 512,
    "kv_heads": None,
    "ffn_hidden": 256,
}
"""A model that every flavour trains."""


def external(flavour: str, *changes: dict[str, Any], **section: Any) -> LoadedRecipe:
    """Return the small recipe for a flavour, its model a GPT, with sections changed."""
    base = {
        "trainer": "external",
        "external": {"flavour": flavour, "path": "checkout", **section},
        "model": GPT,
        "batch": {"micro": 1},
    }
    return loaded(base, *changes)


def values(recipe: LoadedRecipe) -> dict[str, Any]:
    """Return the values of a recipe under its flavour's defaults, whatever rules say of it."""
    shape, hardware, problems = look_up(recipe)
    assert shape is not None, problems
    assert hardware is not None, problems
    resolved = resolve_autos(with_defaults(recipe.recipe)[0], shape, hardware)
    return values_of(with_defaults(recipe.recipe)[0], shape, hardware, resolved)


def parser(flavour: str) -> argparse.ArgumentParser:
    """Return a parser of a program's options, as its own declares them."""
    made = argparse.ArgumentParser(allow_abbrev=False)
    actions = {"true": "store_true", "false": "store_false"}
    types = {"int": int, "float": float, "str": str}
    for name, option in option_table(flavour).items():
        if option.kind == "value":
            choices = [types[option.type](choice) for choice in option.choices] or None
            made.add_argument(
                name,
                dest=option.dest,
                type=types[option.type],
                choices=choices,
                nargs=option.nargs,
                default=option.default,
            )
        elif option.kind == "boolean":
            action = "store_false" if name.startswith("--no-") else "store_true"
            made.add_argument(name, dest=option.dest, action=action, default=option.default)
        else:
            made.add_argument(name, dest=option.dest, action=actions[option.kind], default=option.default)
    return made
