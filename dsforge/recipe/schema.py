"""The JSON Schema of recipes."""

from __future__ import annotations

from typing import Any

from dsforge.base.canonical import dumps
from dsforge.recipe.model import Recipe


def recipe_schema() -> dict[str, Any]:
    """Return the schema as a mapping (JSON Schema 2020-12)."""
    schema = Recipe.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "dsforge recipe"}


def schema_text() -> str:
    """Return the schema as canonical JSON."""
    return dumps(recipe_schema())
