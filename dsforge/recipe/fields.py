"""Every key of a recipe that holds a value: what it takes, its default, what it is for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from dsforge.recipe.model import Recipe
from dsforge.recipe.yaml_text import flow_text


@dataclass(frozen=True, slots=True)
class RecipeField:
    """One key. `kind` says in words what it takes; `choices` are the values that can be listed."""

    key: str
    kind: str
    choices: tuple[Any, ...]
    required: bool
    """Within its section; a section that is left out needs nothing."""
    default: Any
    description: str


@cache
def fields() -> dict[str, RecipeField]:
    """Return every key that holds a value, dotted, in the order of the format."""
    schema = Recipe.model_json_schema(by_alias=True)
    return {field.key: field for field in _walk(schema, schema["$defs"], "")}


def _walk(section: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str) -> Iterator[RecipeField]:
    for name, schema in section["properties"].items():
        alternatives = _alternatives(schema)
        sections = [one["$ref"].rpartition("/")[2] for one in alternatives if "$ref" in one]
        values = [one for one in alternatives if "$ref" not in one]
        if not sections or any(one.get("type") != "null" for one in values):
            yield RecipeField(
                key=prefix + name,
                kind=" or ".join([*map(_kind, values), *("a section" for _ in sections)]),
                choices=tuple(value for one in values for value in _choices(one)),
                required=name in section.get("required", ()),
                default=schema.get("default"),
                description=schema.get("description", ""),
            )
        for inner in sections:
            yield from _walk(definitions[inner], definitions, f"{prefix}{name}.")


def _alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    choices: list[Mapping[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or [schema]
    return choices


def _choices(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    if "const" in schema:
        return (schema["const"],)
    return (False, True) if schema.get("type") == "boolean" else tuple(schema.get("enum", ()))


def _kind(schema: Mapping[str, Any]) -> str:
    choices = _choices(schema)
    if choices:
        return ", ".join(flow_text(choice) for choice in choices)
    kind = schema.get("type", "text")
    if kind == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(map(_kind, schema['prefixItems']))}]"
        return f"list of {' or '.join(map(_kind, _alternatives(schema['items'])))}"
    word = {"string": "text", "object": "mapping"}.get(kind, kind)
    if examples := schema.get("examples"):
        return f"{word} such as {examples[0]}"
    return f"{word}{_bounds(schema)}"


def _bounds(schema: Mapping[str, Any]) -> str:
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    return "".join(f" {word} {flow_text(schema[key])}" for key, word in words.items() if key in schema)
