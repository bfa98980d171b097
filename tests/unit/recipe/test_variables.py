"""`${NAME}` in values, and `DSFORGE__A__B` in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.recipe.load import LoadedRecipe, load_recipe
from dsforge.recipe.origins import Layer
from tests.support.recipes import SMALL, write


def load(folder: Path, text: str, environ: dict[str, str] | None, *changes: str, profile: str | None = None):
    return load_recipe(write(folder, text), changes, profile, environ=environ)


def fault(folder: Path, text: str, environ: dict[str, str] | None, *changes: str) -> DsforgeError:
    with pytest.raises(DsforgeError) as caught:
        load(folder, text, environ, *changes)
    return caught.value


def with_name(value: str) -> str:
    return SMALL.replace("name: small", f"name: {value}")


@pytest.mark.parametrize(
    ("written", "environ", "name"),
    [
        ("run-${JOB}", {"JOB": "7"}, "run-7"),
        ("run-${JOB:none}", {}, "run-none"),
        ("run-${JOB:none}", {"JOB": ""}, "run-"),
        ("${A}${B:-}x".replace(":-", ":"), {"A": "a"}, "ax"),
        ("$${A} ${A}", {"A": "a"}, "${A} a"),
        ("$$${A}", {"A": "a"}, "$${A}"),
        ("$A $", {"A": "a"}, "$A $"),
        ("${A}", {"A": "[1, 2]"}, "[1, 2]"),
        ("${A}", {"A": "x: y"}, "x: y"),
        ("${A}", {"A": "a # b"}, "a # b"),
        ("${A}", {"A": "*x"}, "*x"),
        ("${A}", {"A": "${B}"}, "${B}"),
        ("'${A:a b}'", {}, "a b"),
    ],
)
def test_references_in_text(tmp_path: Path, written: str, environ: dict[str, str], name: str):
    assert load(tmp_path, with_name(written), environ).recipe.name == name


def test_a_value_that_is_one_reference_is_what_its_text_means(tmp_path: Path):
    text = SMALL.replace("global: 32", 'global: "${GB:32}"').replace("lr: 3.0e-3", 'lr: "${LR}"')
    text += 'monitor: {wandb: "${W:true}"}\noffload: {path: "${P:}"}\n'
    recipe = load(tmp_path, text, {"GB": "64", "LR": "1e-3"}).recipe
    assert (recipe.batch.global_size, recipe.optimizer.lr) == (64, 1e-3)
    assert recipe.monitor.wandb is True
    assert recipe.offload.path is None
    wrong = fault(tmp_path, text, {"GB": "many", "LR": "1"})
    assert "'many' is not a count" in wrong.message
    assert str(wrong.place) == f"{tmp_path / 'recipe.yaml'}:6:9"


def test_a_variable_of_the_ranks_keeps_its_text(tmp_path: Path):
    text = SMALL + 'launch: {env: {MODE: "${MODE:010}", B: "a${MODE:1e3}"}}\n'
    text += 'profiles: {p: {launch: {env: {MODE: "${MODE:true}"}}}}\n'
    assert load(tmp_path, text, {}).recipe.launch.env == {"MODE": "010", "B": "a1e3"}
    assert load(tmp_path, text, {}, profile="p").recipe.launch.env["MODE"] == "true"


@pytest.mark.parametrize(
    ("written", "environ", "message", "hint"),
    [
        ("a${NOPE}", {}, "the variable `NOPE` is not set", "${NOPE:value}"),
        ("a${NOPE}", None, "`NOPE` would come from the environment", "${NOPE:value}"),
        ("a${}", {}, "`${}` is no reference", "$${"),
        ("a${1A}", {}, "`${1A}` is no reference", "$${"),
        ("a${A", {}, "`${A` is no reference", "$${"),
        ("a${A:-b}", {}, "`${A:-b}` is no reference", "${NAME:default}"),
        ("a${HF_TOKEN:}", {"HF_TOKEN": "hunter2"}, "`HF_TOKEN` looks like a secret", "env_from: [HF_TOKEN]"),
    ],
)
def test_wrong_references(
    tmp_path: Path, written: str, environ: dict[str, str] | None, message: str, hint: str
):
    found = fault(tmp_path, with_name(written), environ)
    assert found.code == "DSF005"
    assert message in found.message
    assert hint in (found.hint or "")
    assert str(found.place) == f"{tmp_path / 'recipe.yaml'}:2:1"
    assert "hunter2" not in f"{found.message}{found.hint}"


def test_braces_inside_braces_are_explained(tmp_path: Path):
    found = fault(tmp_path, SMALL.replace("global: 32", "global: ${GB:32}"), {})
    assert (found.code, found.hint) == ("DSF002", 'inside braces a reference takes quotes: "${NAME:default}"')


def test_without_an_environment_only_defaults_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GB", "64")
    monkeypatch.setenv("DSFORGE__BATCH__MICRO", "4")
    recipe = load(tmp_path, SMALL.replace("global: 32", 'global: "${GB:32}"'), None).recipe
    assert (recipe.batch.global_size, recipe.batch.micro) == (32, 2)


def test_variables_of_a_profile_are_needed_where_it_is_chosen(tmp_path: Path):
    text = SMALL + "profiles:\n  p: {train: {steps: '${STEPS}'}}\n"
    assert load(tmp_path, text, {}).recipe.train.steps == 30
    chosen = load(tmp_path, text, {"STEPS": "4"}, profile="p")
    assert chosen.recipe.train.steps == 4
    assert chosen.origin("train.steps").variables == ("STEPS from the environment",)
    with pytest.raises(DsforgeError) as caught:
        load(tmp_path, text, {}, profile="p")
    assert str(caught.value.place) == f"{tmp_path / 'recipe.yaml'}:10:15"


@pytest.mark.parametrize(
    ("name", "value", "key", "expected"),
    [
        ("DSFORGE__BATCH__MICRO", "1", "batch.micro", 1),
        ("DSFORGE__CLUSTER__GPUS_PER_NODE", "16", "cluster.gpus_per_node", 16),
        ("DSFORGE__TRAIN__TOKENS", "4M tokens", "train.tokens", 4_000_000),
        ("DSFORGE__MODEL", "gpt2", "model", "gpt2"),
        ("DSFORGE__MODEL__LAYERS", "6", "model.layers", 6),
        ("DSFORGE__OPTIMIZER__BETAS", "[0.8, 0.9]", "optimizer.betas", (0.8, 0.9)),
        ("DSFORGE__LAUNCH__ENV__NCCL_DEBUG", "INFO", "launch.env.NCCL_DEBUG", "INFO"),
        ("DSFORGE__LAUNCH__ENV__My__Own", "x", "launch.env.My__Own", "x"),
        ("DSFORGE__LAUNCH__ENV__MODE", "010", "launch.env.MODE", "010"),
    ],
)
def test_the_environment_changes_a_recipe(tmp_path: Path, name: str, value: str, key: str, expected: object):
    loaded: LoadedRecipe = load(tmp_path, SMALL, {name: value, "DSFORGE_RUNS": "x", "DSFORGE_DEBUG": "1"})
    found: object = loaded.recipe
    for part in key.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    assert found == expected
    assert loaded.origin(key).layer is Layer.ENVIRONMENT
    assert loaded.origin(key).name == name


def test_the_environment_stands_between_profile_and_arguments(tmp_path: Path):
    text, environ = SMALL + "profiles: {p: {train: {steps: 5, seed: 5}}}\n", {"DSFORGE__TRAIN__STEPS": "6"}
    chosen = load(tmp_path, text, environ, profile="p").recipe.train
    assert (chosen.steps, chosen.seed) == (6, 5)
    assert load(tmp_path, text, environ, "train.steps=7", profile="p").recipe.train.steps == 7
    whole = {"DSFORGE__TRAIN": "{steps: 1, precision: fp32}", "DSFORGE__TRAIN__STEPS": "6"}
    assert load(tmp_path, text, whole).recipe.train.steps == 6


@pytest.mark.parametrize(
    ("name", "value", "code", "hint"),
    [
        ("DSFORGE__BATCH__MIKRO", "1", "DSF023", "did you mean `DSFORGE__BATCH__MICRO`?"),
        ("DSFORGE__BACH__MICRO", "1", "DSF023", "did you mean `DSFORGE__BATCH__MICRO`?"),
        ("DSFORGE__ZERO_STAGE", "1", "DSF023", "did you mean `DSFORGE__PARALLEL__ZERO`?"),
        ("DSFORGE__XYZZY", "1", "DSF023", "`dsforge schema` lists the legal keys"),
        ("DSFORGE__", "1", "DSF023", "`dsforge schema` lists the legal keys"),
        ("DSFORGE__PARALLEL__TP__X", "1", "DSF023", None),
        ("DSFORGE__PROFILES__P", "{}", "DSF023", "unset DSFORGE__PROFILES__P"),
        ("DSFORGE__EXTENDS", "x.yaml", "DSF023", "unset DSFORGE__EXTENDS"),
        ("DSFORGE__BATCH__MICRO", "[", "DSF002", "correct the YAML syntax"),
        ("DSFORGE__BATCH__MICRO", "", "DSF010", None),
        ("DSFORGE__BATCH__MICRO", "0", "DSF010", "it must be at least 1"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, name: str, value: str, code: str, hint: str | None):
    found = fault(tmp_path, SMALL, {name: value})
    assert found.code == code
    assert str(found.place).startswith(f"environment variable `{name}`")
    assert hint is None or found.hint == hint
