"""The table of fields says what the format takes."""

from __future__ import annotations

import pytest

from dsforge.recipe.consequences import CONSEQUENCES
from dsforge.recipe.fields import fields
from dsforge.recipe.load import load_recipe
from tests.support.recipes import SMALL, write


def test_every_key_that_holds_a_value_is_a_field():
    assert set(fields()) == set(CONSEQUENCES) - {"data", "external"}  # a section that may be left out
    assert all(field.description for field in fields().values())


@pytest.mark.parametrize(
    ("key", "kind", "choices", "required", "default"),
    [
        ("version", "1", (1,), True, None),
        ("model", "text or a section", (), True, None),
        ("model.tied", "false, true or null", (False, True), False, None),
        ("parallel.zero", "0, 1, 2, 3, auto", (0, 1, 2, 3, "auto"), False, "auto"),
        ("batch.micro", "integer from 1 or text such as 2K samples or auto", ("auto",), False, "auto"),
        ("optimizer.lr", "number above 0 to 100", (), False, 3.0e-4),
        ("optimizer.betas", "[number from 0 below 1, number from 0 below 1]", (), False, [0.9, 0.95]),
        ("launch.watchdog", "number from 0 or text such as 1h30m", (), False, 900.0),
        ("launch.env_from", "list of text", (), False, []),
        ("data.train", "text or list of [number above 0, text]", (), True, None),
    ],
)
def test_what_a_field_takes(key, kind, choices, required, default):
    found = fields()[key]
    assert (found.kind, found.choices, found.required, found.default) == (kind, choices, required, default)


def test_the_examples_of_the_schema_are_taken(tmp_path):
    text = SMALL.replace("global: 32", "global: 2K samples").replace("seq_len: 64", "seq_len: 2K tokens")
    text = text.replace("steps: 30", "steps: 2K steps")
    recipe = write(tmp_path, text + "launch: {watchdog: 1h30m}\n")
    loaded = load_recipe(recipe).recipe
    assert (loaded.batch.global_size, loaded.batch.seq_len, loaded.train.steps) == (2000, 2000, 2000)
    assert loaded.launch.watchdog == 5400.0
