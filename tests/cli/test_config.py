"""`config`: every value with its origin, and the resolved recipe as a recipe again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsforge.plan.resolve import make_plan
from dsforge.recipe import migrate, version
from dsforge.recipe.edit import rename
from dsforge.recipe.load import load_recipe
from tests.support.recipes import SHIPPED, SMALL, write

Cli = Callable[..., Any]


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSFORGE__TRAIN__SEED", "5")
    monkeypatch.setenv("LR", "1e-3")
    write(tmp_path, SMALL)
    return write(
        Path(),
        'version: 1\nextends: recipe.yaml\nmodel: gpt2\noptimizer: {lr: "${LR:2}", eps: "${EPS:1e-7}"}\n'
        "profiles: {short: {train: {steps: 4}}}\n",
        "child.yaml",
    )


def test_every_layer_is_named(cli: Cli, child: Path):
    shown = cli(
        "config", "show", child, "batch.micro=1", "--set", "launch.restarts=2", "--profile", "short", "--json"
    )
    assert shown.code == 0, shown.err
    told = {row["key"]: row["origin"]["text"] for row in shown.json["values"]}
    assert told["batch.global"] == "recipe.yaml:6:9"
    assert told["model"] == "child.yaml:3:1"
    assert told["model.layers"] == "preset gpt2"
    assert told["optimizer.lr"] == "child.yaml:4:13, LR from the environment"
    assert told["optimizer.eps"] == "child.yaml:4:28, EPS from its default"
    assert told["train.steps"] == "profile short (child.yaml:5:28)"
    assert told["train.seed"] == "environment DSFORGE__TRAIN__SEED"
    assert told["batch.micro"] == "argument `batch.micro=1`"
    assert told["launch.restarts"] == "argument `launch.restarts=2`"
    assert told["train.recompute"] == "default"
    assert told["name"] == "default: the file's name"
    layers = {row["origin"]["layer"] for row in shown.json["values"]}
    assert layers == {"default", "preset", "extends", "recipe", "profile", "environment", "argument"}
    by_key = {row["key"]: row["value"] for row in shown.json["values"]}
    assert (by_key["optimizer.lr"], by_key["train.steps"], by_key["train.seed"]) == (1e-3, 4, 5)
    assert shown.json["precedence"].startswith("defaults < preset < extends < recipe < profile")


def test_origins_in_text(cli: Cli, child: Path):
    lines = cli("config", "show", child, "--origin").out.splitlines()
    assert lines[0] == "# defaults < preset < extends < recipe < profile < environment < arguments"
    told = {head.strip(): origin for head, _, origin in (line.partition("  # ") for line in lines)}
    assert told["tp: 2"] == "recipe.yaml:5:12"
    assert told["parallel:"] == ""
    assert "#   layers: 12" in told


@pytest.mark.parametrize("recipe", SHIPPED, ids=lambda path: path.stem)
@pytest.mark.parametrize("flags", [(), ("--origin",)], ids=["plain", "origin"])
def test_what_is_shown_loads_again_as_the_same_recipe(
    cli: Cli, recipe: Path, flags: tuple[str, ...], tmp_path: Path
):
    again = write(tmp_path, cli("config", "show", recipe, *flags).out, recipe.name)
    assert load_recipe(again).recipe == load_recipe(recipe).recipe
    plans = [make_plan(load_recipe(path)).model_copy(update={"findings": ()}) for path in (recipe, again)]
    assert plans[0] == plans[1]


def test_changes_may_be_options(cli: Cli, tmp_path: Path):
    path = write(tmp_path)
    plan = cli(
        "plan", path, "--set", "batch.micro=1", "train.steps=8", "--set", "train.seed=3", "--json"
    ).json
    assert (plan["batch"]["micro"], plan["train"]["steps"], plan["train"]["seed"]) == (1, 8, 3)
    wrong = cli("validate", path, "--set", "batch.global=33")
    assert wrong.code == 1
    assert "--> argument `batch.global=33`" in wrong.err


def test_a_recipe_of_an_older_version_is_rewritten_in_place(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    step = migrate.Step(
        1, "batch.global is called batch.samples", lambda text: rename(text, "batch.global", "samples")
    )
    monkeypatch.setattr(migrate, "registered", lambda: {1: step})
    monkeypatch.setattr(migrate, "NEWEST", 2)
    monkeypatch.setattr(version, "NEWEST", 2)
    path = write(tmp_path, "# kept\n" + SMALL)
    path.chmod(0o640)
    old = cli("validate", path)
    assert (old.code, "`dsforge config migrate` rewrites it" in old.err) == (2, True)
    dry = cli("config", "migrate", path, "--dry-run")
    assert path.read_text() == "# kept\n" + SMALL
    done = cli("config", "migrate", path)
    assert (done.code, done.out) == (0, dry.out)
    assert "-version: 1\n" in done.out
    assert "+version: 2\n" in done.out
    assert path.read_text() == "# kept\n" + SMALL.replace("version: 1", "version: 2").replace(
        "global", "samples"
    )
    assert path.stat().st_mode & 0o777 == 0o640
    again = cli("config", "migrate", path)
    assert (again.code, again.out) == (0, "")
    assert "has version 2 already" in again.err
    write(tmp_path, SMALL.replace("version: 1", "version: 3"))
    assert cli("config", "migrate", path).code == 2
