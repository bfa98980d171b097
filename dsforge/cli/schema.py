"""`dsforge schema`: the JSON Schema of recipes, for editors."""

from __future__ import annotations

import typer

from dsforge.cli import output


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("schema", rich_help_panel=panel)(schema)


def schema() -> None:
    """Print the JSON Schema of the recipe format."""
    from dsforge.recipe.schema import schema_text

    output.data(schema_text())
