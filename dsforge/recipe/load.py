"""Loads a recipe: file, then profile, then `key=value` arguments, each fault with its place."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.recipe.document import Document, KeyPath, parse, parse_value, read_text
from dsforge.recipe.faults import explain
from dsforge.recipe.model import Recipe
from dsforge.recipe.model_file import names_config, read_model_config


@dataclass(frozen=True, slots=True)
class LoadedRecipe:
    """A checked recipe, its text, and where each value came from."""

    recipe: Recipe
    path: Path
    text: str
    document: Document
    model_config: Mapping[str, Any] | None = None
    """What the `config.json` holds that `model` names, if it names one."""

    def place(self, dotted: str | None) -> Place:
        """Return where a dotted key stands, or the nearest key around it."""
        parts = dotted.split(".") if dotted else ()
        return self.document.place(tuple(int(part) if part.isdecimal() else part for part in parts))


def load_recipe(path: Path, overrides: Sequence[str] = (), profile: str | None = None) -> LoadedRecipe:
    """Read, merge and check a recipe; DsforgeError with every fault and its place."""
    text = read_text(path)
    document = parse(text, str(path))
    document.data.setdefault("name", path.stem.strip() or "recipe")
    if profile is not None:
        _apply_profile(document, profile, path)
    for argument in overrides:
        apply_override(document, argument)
    recipe = check(document)
    for name in sorted(recipe.profiles):
        if name != profile:
            check(_with_profile(parse(text, str(path)), name, path))
    config = None
    if names_config(recipe.model):
        config = read_model_config(path.parent / str(recipe.model), document.place(("model",)))
    return LoadedRecipe(recipe, path, text, document, config)


def _with_profile(document: Document, name: str, path: Path) -> Document:
    """A fault in a profile is told now, not on the day the profile is first used."""
    document.data.setdefault("name", path.stem.strip() or "recipe")
    _apply_profile(document, name, path)
    return document


def check(document: Document) -> Recipe:
    """Return the typed recipe; one DsforgeError DSF010 carries every fault found."""
    try:
        return Recipe.model_validate(document.data)
    except ValidationError as error:
        findings = _findings(error, document)
    first = findings[0]
    raise DsforgeError(
        first.code, first.message, first.place, first.hint, exit_code=2, findings=tuple(findings[1:])
    )


def _findings(error: ValidationError, document: Document) -> list[Finding]:
    findings: list[Finding] = []
    seen: set[KeyPath] = set()
    for fault in error.errors(include_url=False):
        path, message, hint = explain(fault, document.data)
        if path in seen:
            continue  # the other arm of a union says the same of the same key
        seen.add(path)
        code = "DSF011" if fault["type"] == "extra_forbidden" else "DSF010"
        key = ".".join(str(part) for part in path) or None
        findings.append(Finding(code, Severity.ERROR, message, key, document.place(path), hint))
    # A misspelt key comes before the required key that it was meant to be.
    return sorted(findings, key=lambda finding: finding.code != "DSF011")


def merge(base: dict[str, Any], change: Mapping[str, Any]) -> None:
    """Lay a change over a tree in place: mappings merge, anything else replaces."""
    for key, value in change.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = copy.deepcopy(value)


def _apply_profile(document: Document, name: str, path: Path) -> None:
    profiles = document.data.get("profiles")
    known = sorted(profiles) if isinstance(profiles, dict) else []
    if name not in known or not isinstance(profiles, dict) or not isinstance(profiles[name], dict):
        listed = ", ".join(known) or "none"
        place = document.place(("profiles",)) if known else Place(file=str(path))
        raise DsforgeError("DSF020", f"no profile `{name}`", place, f"profiles of this recipe: {listed}")
    change = profiles[name]
    if "profiles" in change:
        place = document.place(("profiles", name, "profiles"))
        raise DsforgeError("DSF020", "a profile cannot hold profiles", place, "move it to the top level")
    prefix: KeyPath = ("profiles", name)
    for source, place in list(document.places.items()):
        if source[:2] == prefix and len(source) > 2:
            document.places[source[2:]] = place
    merge(document.data, change)


def apply_override(document: Document, argument: str) -> None:
    """Set one `key.path=value` on the document; DsforgeError DSF021 when it is not of that form."""
    origin = f"argument `{argument}`"
    key, equals, raw = argument.partition("=")
    path: KeyPath = tuple(key.split("."))
    if not equals or not all(path):
        raise DsforgeError(
            "DSF021",
            f"`{argument}` is not key.path=value",
            Place(file=origin),
            "for example batch.micro=4, without spaces around the sign",
        )
    if path[0] == "profiles":
        raise DsforgeError(
            "DSF021", "profiles are chosen with --profile", Place(file=origin), "--profile NAME"
        )
    if len(path) == 3 and path[:2] == ("launch", "env"):
        origin = f"argument `{key}=...`"  # a value that may be secret is never shown
        value: Any = raw  # the text as it stands: YAML would rewrite 010 and 1e3
    else:
        value = parse_value(raw, origin)
    tree = document.data
    for depth, part in enumerate(path[:-1]):
        inner = tree.setdefault(str(part), {})
        if not isinstance(inner, dict):
            at = ".".join(str(p) for p in path[: depth + 1])
            raise DsforgeError(
                "DSF021",
                f"`{at}` is a value, not a section, so `{key}` cannot be set",
                Place(file=origin),
                f"set {at} itself",
            )
        tree = inner
    tree[str(path[-1])] = value
    for stale in [p for p in document.places if p[: len(path)] == path]:
        del document.places[stale]
    document.places[path] = Place(file=origin)
