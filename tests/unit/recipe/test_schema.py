"""The JSON Schema takes what the loader takes and refuses what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from ruamel.yaml import YAML

from tests.support.recipes import ROOT, SHIPPED, small


@pytest.fixture(scope="module")
def validator() -> jsonschema.protocols.Validator:
    from dsforge.recipe.schema import schema_text

    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_command_prints_it(cli: Callable[..., Any]):
    shown = cli("schema")
    assert shown.code == 0
    assert shown.json["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(shown.json["else"]["required"]) == {"version", "model", "cluster", "batch"}


def test_every_key_is_described(cli: Callable[..., Any]):
    schema = cli("schema").json
    for name, section in schema["$defs"].items():
        assert section["description"], name
        assert section["additionalProperties"] is False
        for key, value in section["properties"].items():
            assert value.get("description"), f"{name}.{key}"


@pytest.mark.parametrize("recipe", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_validate(validator: Any, recipe: Path):
    validator.validate(YAML(typ="safe", pure=True).load(recipe.read_text("utf-8")))


@pytest.mark.parametrize(
    ("section", "key", "value", "legal"),
    [
        ("batch", "global", "4K", True),
        ("batch", "global", 0, False),
        ("batch", "global", "many", False),
        ("batch", "global_size", 32, False),
        ("batch", "micro", "auto", True),
        ("batch", "micro", "automatic", False),
        ("parallel", "tp", "2", False),
        ("parallel", "tp", True, False),
        ("parallel", "zero", 4, False),
        ("parallel", "zero", "auto", True),
        ("train", "tokens", "2.3M tokens", True),
        ("train", "precision", "tf32", False),
        ("optimizer", "lr", "3e-4", False),
        ("optimizer", "betas", [0.9], False),
        ("optimizer", "betas", [0.9, 0.95], True),
        ("launch", "watchdog", "1h30m", True),
        ("launch", "watchdog", "soon", False),
        ("launch", "env", {"A B": "x"}, False),
        ("launch", "env", {"A": 1}, False),
        ("launch", "env", {"A": "1"}, True),
        ("batch", "global", "4M tokens", False),
        ("batch", "seq_len", "4K tokens", True),
        ("launch", "launcher", "ray", False),
        ("data", "train", [[1.0, "a"]], True),
        ("data", "train", [], False),
        ("model", "arch", "bert", False),
        ("model", "layers", None, False),
        ("monitor", "wandb", 1, False),
        ("checkpoint", "resume", "never", True),
        ("batch", "seq_len", None, False),
    ],
)
def test_schema_and_loader_agree(validator: Any, section: str, key: str, value: Any, legal: bool):
    from pydantic import ValidationError

    from dsforge.recipe.model import Recipe

    data = small()
    data.setdefault(section, {})[key] = value
    if key == "global_size":
        del data["batch"]["global"]
    assert validator.is_valid(data) is legal
    try:
        Recipe.model_validate(data)
    except ValidationError:
        loads = False
    else:
        loads = True
    assert loads is legal


def test_a_preset_or_a_shape_but_no_number_is_a_model(validator: Any):
    assert validator.is_valid({**small(), "model": "gpt2"})
    assert not validator.is_valid({**small(), "model": 13})
    assert not validator.is_valid({**small(), "version": 2})
    assert not validator.is_valid({**small(), "extra": 1})


def test_a_file_that_extends_another_need_not_be_whole(validator: Any):
    part = {"version": 1, "extends": "base.yaml", "batch": {"global": 64}, "model": {"layers": 2}}
    assert validator.is_valid(part)
    assert not validator.is_valid({**part, "extends": None})
    assert not validator.is_valid({**part, "extends": 3})
    assert not validator.is_valid({**part, "batch": {"globl": 64}})
    assert not validator.is_valid({"extends": "base.yaml"})
    for section, key in (("cluster", "gpu"), ("batch", "global"), ("model", "vocab")):
        lacking = small()
        del lacking[section][key]
        assert not validator.is_valid(lacking), key


@pytest.mark.parametrize(
    ("section", "key"),
    [("batch", "global"), ("train", "precision"), ("monitor", "wandb"), ("optimizer", "lr")],
)
def test_a_reference_may_stand_for_any_value(validator: Any, section: str, key: str):
    data = small()
    data.setdefault(section, {})[key] = "${NAME:1}"
    assert validator.is_valid(data)
    data[section][key] = "$NAME"
    assert not validator.is_valid(data)


def test_the_published_schema_is_this_one():
    """`make schema` writes it anew."""
    from dsforge.recipe.schema import FILE_NAME, schema_text

    assert (ROOT / "docs" / "reference" / FILE_NAME).read_text("utf-8") == schema_text()


def test_every_key_that_holds_a_value_has_a_consequence():
    from dsforge.recipe.consequences import CONSEQUENCES
    from dsforge.recipe.model import Recipe
    from dsforge.recipe.vocabulary import walk

    keys = set(walk(Recipe))
    sections = {key.rpartition(".")[0] for key in keys if "." in key}
    # `model` may be a name, and `data` and `external` may be left out: they are values too.
    assert set(CONSEQUENCES) == (keys - sections) | {"model", "data", "external"}


def test_every_path_of_the_recipe_is_known_to_be_one():
    from dsforge.recipe.model import Recipe
    from dsforge.recipe.paths import DATA_SET_KEYS, PATH_KEYS
    from dsforge.recipe.quantities import PathText
    from dsforge.recipe.vocabulary import keys_of, section_of

    pattern = get_args(PathText)[1].metadata[-1].pattern
    sections = {name: section_of(annotation) for name, annotation in keys_of(Recipe).items()}
    found = {
        f"{name}.{field.alias or key}"
        for name, section in sections.items()
        if section is not None
        for key, field in section.model_fields.items()
        if repr(pattern) in repr(field)
    }
    assert found == {*PATH_KEYS, *DATA_SET_KEYS}
