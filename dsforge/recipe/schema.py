"""The JSON Schema of recipes: of files as they are written, with `extends` and `${NAME}` references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsforge.base.canonical import dumps
from dsforge.base.errors import DsforgeError
from dsforge.recipe.model import Recipe
from dsforge.recipe.vocabulary import keys_of, section_of

FILE_NAME = "recipe.schema.json"
_ANNOTATIONS = ("title", "description", "default")
_REFERENCE = {"type": "string", "pattern": r"\$\{"}


def recipe_schema() -> dict[str, Any]:
    """Return the schema as a mapping (JSON Schema 2020-12)."""
    schema = Recipe.model_json_schema(by_alias=True)
    for section in _objects(schema):
        if "patternProperties" in section:
            section["additionalProperties"] = False
    required_by_section = {
        name: section.pop("required", []) for name, section in sorted(schema["$defs"].items())
    }
    for section in (schema, *schema["$defs"].values()):
        for key, value in section["properties"].items():
            if key not in {"version", "profiles"}:
                section["properties"][key] = _with_reference(value)
    schema.update(_required(schema.pop("required"), required_by_section))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "dsforge recipe"}


def _required(top: list[str], by_section: dict[str, list[str]]) -> dict[str, Any]:
    """A file that extends another need not be whole; one that does not has every required key."""
    sections = {key: section_of(annotation) for key, annotation in keys_of(Recipe).items()}
    inside = {
        key: {"required": by_section[section.__name__]}
        for key, section in sections.items()
        if section is not None and by_section[section.__name__]
    }
    return {
        "required": ["version"],
        "if": {"properties": {"extends": {"type": "string"}}, "required": ["extends"]},
        "else": {"required": top, "properties": inside},
    }


def _with_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Let a reference to a variable stand wherever a value of another kind may."""
    if "$ref" in schema or schema.get("type") == "object":
        return schema
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return {**schema, "prefixItems": [_with_reference(item) for item in schema["prefixItems"]]}
        return {**schema, "items": _with_reference(schema["items"])}
    told = {key: schema[key] for key in _ANNOTATIONS if key in schema}
    rule = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    choices = rule["anyOf"] if set(rule) == {"anyOf"} else [rule]
    return {**told, "anyOf": [*choices, _REFERENCE]}


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping of a schema: pydantic leaves keys that match no pattern open."""
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _objects(inner)


def schema_text() -> str:
    """Return the schema as canonical JSON."""
    return dumps(recipe_schema())


def editor_header(place: str) -> str:
    """Return the first line of a recipe: where its schema lies; DsforgeError DSF067 for a blank in it."""
    if not place.isprintable() or " " in place:
        raise DsforgeError("DSF067", "the place of the schema holds a blank", hint="name one without blanks")
    return f"# yaml-language-server: $schema={place}\n"
