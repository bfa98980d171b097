"""The JSON Schema of recipes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsforge.base.canonical import dumps
from dsforge.recipe.model import Recipe


def recipe_schema() -> dict[str, Any]:
    """Return the schema as a mapping (JSON Schema 2020-12)."""
    schema = Recipe.model_json_schema(by_alias=True)
    for section in _objects(schema):
        if "patternProperties" in section:
            section["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "dsforge recipe"}


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping of a schema: pydantic leaves keys that match no pattern open."""
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _objects(inner)


def schema_text() -> str:
    """Return the schema as canonical JSON."""
    return dumps(recipe_schema())
