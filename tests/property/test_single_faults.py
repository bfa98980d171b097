"""From each shipped recipe, every single-field fault is caught with a code and at its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dsforge.recipe.load import load_recipe, merge
from tests.support.recipes import ROOT, SHIPPED
from tests.support.single_faults import faults_of, illegal_values, read_schema, write

SCHEMA = read_schema(ROOT / "docs" / "reference" / "recipe.schema.json")
LEAST_FAULTS = 1_000


def _said(recipe: Path) -> dict[str, Any]:
    """Return what a recipe says, and those it extends; of the smoke recipe all defaults too."""
    said = json.loads(json.dumps(YAML(typ="safe", pure=True).load(recipe.read_text("utf-8"))))
    if "extends" in said:
        said = json.loads(json.dumps(load_recipe(recipe).document.data))
        said.pop("extends", None)
    if recipe.stem != "smoke":
        return said  # type: ignore[no-any-return]  # json.loads of a mapping
    whole = load_recipe(recipe).recipe.model_dump(mode="json", by_alias=True, exclude_none=True)
    merge(whole, said)
    return whole


def _validate(cli: Callable[..., Any], texts: list[str], folder: Path) -> list[list[dict[str, Any]]]:
    files = [folder / f"{number}.yaml" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, "utf-8")
    shown = cli("validate", "--json", *files)
    assert shown.code in {0, 1, 2}, shown.err
    assert "Traceback" not in shown.err
    return [one["findings"] for one in shown.json["recipes"]]


@pytest.mark.parametrize("recipe", SHIPPED, ids=lambda path: path.stem)
def test_each_fault_is_caught_at_its_place(recipe: Path, cli: Callable[..., Any], tmp_path: Path):
    tree = _said(recipe)
    (clean,) = _validate(cli, [write(tree).text], tmp_path)
    assert not [one for one in clean if one["severity"] == "error"]
    faults = [*faults_of(tree, SCHEMA), *illegal_values(tree, cli("plan", "--json", recipe).json)]
    missed = []
    for fault, findings in zip(faults, _validate(cli, [one.text for one in faults], tmp_path), strict=True):
        at = [
            one
            for one in findings
            if one["severity"] == "error"
            and one["code"] in fault.codes
            and (one["place"]["line"], one["place"]["column"]) == fault.place
            and one["hint"]
            and fault.hint in one["hint"]
        ]
        if not at:
            missed.append(
                (fault.name, fault.place, [(one["code"], one["place"], one["hint"]) for one in findings])
            )
    assert not missed, f"{len(missed)} of {len(faults)}: {missed[:12]}"


def test_there_are_enough_of_them():
    assert sum(1 for recipe in SHIPPED for _ in faults_of(_said(recipe), SCHEMA)) >= LEAST_FAULTS
