"""Parameters of released models, to the unit: tests/data/params.csv holds transformers' own counts."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import get_args

import pytest

from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.families import families
from dsforge.catalog.tables import models
from dsforge.layout.families import differences
from dsforge.layout.shape import resolve_shape
from dsforge.recipe.model_sections import ShapeSection

_ROWS = list(csv.DictReader((Path(__file__).parents[2] / "data" / "params.csv").open(encoding="utf-8")))
_FAR_FROM_THEIR_NAME = {"gemma-2b", "gemma-7b", "gemma2-2b", "llama3.2-1b", "llama3.2-3b", "qwen2.5-7b"}


def test_no_published_count_was_lost():
    assert len({row["model"] for row in _ROWS}) == len(_ROWS) >= 58


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row["model"])
def test_counts_to_the_unit(row: dict[str, str]):
    shape = resolve_shape(row["model"], 2048)
    parts = shape.components()
    assert shape.parameters() == int(row["total"])
    assert shape.active_parameters() == int(row["active"] or row["total"])
    assert parts["word_embedding"] == int(row["input_embedding"])
    assert shape.tied is (row["tied"] == "1")
    assert sum(parts.values()) - parts["word_embedding"] - parts["head"] == int(row["non_embedding"])


@pytest.mark.parametrize("name", models())
def test_what_forge_builds_is_of_a_family_that_a_recipe_can_spell_out(name: str):
    shape, forge = resolve_shape(name, 64), capabilities("forge")
    plain = [families()[family] for family in forge.families]
    spelled = get_args(ShapeSection.model_fields["arch"].annotation)
    builds = shape.arch in spelled and shape.experts is None
    assert builds is (differences(shape, plain, 64, forge.traits) == [])


@pytest.mark.parametrize(
    ("name", "billions"),
    # Narayanan et al. 2021, table 1 (the first column), to the digit printed there.
    [
        ("megatron-1.7b", 1.7),
        ("megatron-3.6b", 3.6),
        ("megatron-7.5b", 7.5),
        ("megatron-18b", 18.4),
        ("megatron-39b", 39.1),
        ("megatron-76b", 76.1),
        ("megatron-145b", 145.6),
        ("megatron-310b", 310.1),
        ("megatron-530b", 529.6),
        ("megatron-1t", 1008.0),
    ],
)
def test_the_megatron_shapes_as_published(name: str, billions: float):
    assert round(resolve_shape(name, 2048).parameters() / 1e9, 1) == billions


@pytest.mark.parametrize("name", models())
def test_exact_counts_are_near_the_size_in_the_name(name: str):
    exact = resolve_shape(name, 2048).parameters()
    near = abs(exact / models()[name].nominal_parameters - 1) < 0.06
    assert near is (name not in _FAR_FROM_THEIR_NAME)
