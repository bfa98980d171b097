"""Loads a recipe: extended files, file, profile, environment, arguments; each fault with its place."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.recipe.document import Document, KeyPath, parse_value, read_text
from dsforge.recipe.environment import apply_environment
from dsforge.recipe.extends import read_chain
from dsforge.recipe.faults import explain
from dsforge.recipe.layers import lay_over, mark, merge, part, put, take_out
from dsforge.recipe.measured_file import read_measured
from dsforge.recipe.model import Recipe
from dsforge.recipe.model_file import names_config, read_model_config
from dsforge.recipe.origins import Layer, Origin
from dsforge.recipe.variables import interpolate, is_env_value
from dsforge.recipe.vocabulary import is_key

__all__ = ["LoadedRecipe", "apply_override", "check", "load_recipe", "merge"]


@dataclass(frozen=True, slots=True)
class LoadedRecipe:
    """A checked recipe, its text, where each value came from, and what was chosen besides the file."""

    recipe: Recipe
    path: Path
    text: str
    document: Document
    model_config: Mapping[str, Any] | None = None
    """What the `config.json` holds that `model` names, if it names one."""
    partition_weights: Mapping[str, Any] | None = None
    """What the file holds that `parallel.partition_weights` names, if it names one."""
    profile: str | None = None
    changes: tuple[str, ...] = ()

    def place(self, dotted: str | None) -> Place:
        """Return where a dotted key stands, or the nearest key around it."""
        return self.document.place(_key_path(dotted))

    def origin(self, dotted: str) -> Origin:
        """Return which layer set a dotted key."""
        return self.document.origin(_key_path(dotted))


_INDEX = re.compile("[0-9]{1,9}")


def _key_path(dotted: str | None) -> KeyPath:
    parts = dotted.split(".") if dotted else ()
    return tuple(int(part) if _INDEX.fullmatch(part) else part for part in parts)


def load_recipe(
    path: Path,
    overrides: Sequence[str] = (),
    profile: str | None = None,
    arguments: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    text: str | None = None,
) -> LoadedRecipe:
    """Read, merge and check a recipe; DsforgeError with every fault and its place.

    `arguments` join those of the recipe's external program. Without `environ` nothing ambient enters:
    references take their defaults. `text` stands in for the file's, to judge an edit before it is written.
    """
    text = read_text(path) if text is None else text
    written = read_chain(path, text, environ)
    document = copy.deepcopy(written)
    if profile is not None:
        _apply_profile(document, profile, path, environ)
    if environ is not None:
        apply_environment(document, environ)
    for argument in overrides:
        apply_override(document, argument)
    if arguments:
        pass_on(document, arguments)
    if "name" not in document.data:
        document.data["name"] = path.stem.strip() or "recipe"
        document.origins["name",] = Origin(Layer.DEFAULT, "the file's name")
    recipe = check(document)
    for name in sorted(recipe.profiles):
        if name != profile:
            _check_profile(copy.deepcopy(written), name, path, environ)
    config = None
    if names_config(recipe.model):
        config = read_model_config(path.parent / str(recipe.model), document.place(("model",)))
    weights, named = None, recipe.parallel.partition_weights
    if named is not None:
        place = document.place(("parallel", "partition_weights"))
        weights = read_measured(path.parent / named, place, "`dsforge tune --layers RECIPE` writes it")
    return LoadedRecipe(
        recipe,
        path,
        text,
        document,
        model_config=config,
        partition_weights=weights,
        profile=profile,
        changes=(*overrides, *(("--", *arguments) if arguments else ())),
    )


def _check_profile(document: Document, name: str, path: Path, environ: Mapping[str, str] | None) -> None:
    """A fault in a profile is told now, not on the day the profile is first used."""
    try:
        _apply_profile(document, name, path, environ)
    except DsforgeError as fault:
        if fault.code != "DSF005":
            raise
        return  # its variables are only needed where it is chosen
    check(document)


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


def _apply_profile(document: Document, name: str, path: Path, environ: Mapping[str, str] | None) -> None:
    profiles = document.data.get("profiles")
    known = sorted(profiles) if isinstance(profiles, dict) else []
    if name not in known or not isinstance(profiles, dict) or not isinstance(profiles[name], dict):
        listed = ", ".join(known) or "none"
        place = document.place(("profiles",)) if known else Place(file=str(path))
        raise DsforgeError("DSF020", f"no profile `{name}`", place, f"profiles of this recipe: {listed}")
    for key, fault, hint in (
        ("profiles", "a profile cannot hold profiles", "move it to the top level"),
        ("extends", "a profile cannot extend a file", "extend it at the top level"),
    ):
        if key in profiles[name]:
            raise DsforgeError("DSF020", fault, document.place(("profiles", name, key)), hint)
    interpolate(document, environ, under=("profiles", name))
    change = part(document, ("profiles", name))
    mark(change, Layer.PROFILE, name)
    lay_over(document, change)


def apply_override(document: Document, argument: str) -> None:
    """Set one `key.path=value` on the document, or with the value null take the key out.

    DsforgeError DSF021 when the argument is not of that form.
    """
    place = Place(file=f"argument `{argument}`")
    key, equals, raw = argument.partition("=")
    path: KeyPath = tuple(key.split("."))
    if not equals or not all(path):
        raise DsforgeError(
            "DSF021",
            f"`{argument}` is not key.path=value",
            place,
            "for example batch.micro=4, without spaces around the sign",
        )
    for word, fault, hint in (
        ("profiles", "profiles are chosen with --profile", "--profile NAME"),
        ("extends", "a recipe says in its file what it extends", "write `extends:` into the file"),
    ):
        if path[0] == word:
            raise DsforgeError("DSF021", fault, place, hint)
    shown, value = argument, raw
    if is_env_value(path):
        # A value that may be secret is never shown, and its text arrives as it stands.
        shown = f"{key}=..."
        place = Place(file=f"argument `{shown}`")
    else:
        value = parse_value(raw, str(place), path)
    if value is None and raw.strip() and is_key(path):  # `key=$UNSET` is no word for it
        take_out(document, path)
        return
    put(document, path, value, place, Origin(Layer.ARGUMENT, shown))


def pass_on(document: Document, words: Sequence[str]) -> None:
    """Add the words behind `--` to the program's arguments; DsforgeError DSF026 where there is no program."""
    section = document.data.get("external")
    if not isinstance(section, dict):
        raise DsforgeError(
            "DSF026",
            f"`{words[0]}` is for an external program, and this recipe names none",
            Place(file="argument 1 after --"),
            "set `trainer: external` and name the program under `external`; changes stand before `--`",
        )
    written = section.get("arguments")
    written = list(written) if isinstance(written, list | tuple) else []
    section["arguments"] = [*written, *words]
    for number, word in enumerate(words, start=1):
        path: KeyPath = ("external", "arguments", len(written) + number - 1)
        document.places[path] = Place(file=f"argument {number} after --")
        document.origins[path] = Origin(Layer.ARGUMENT, word)
