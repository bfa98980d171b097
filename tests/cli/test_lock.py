"""The lock: the same bytes everywhere, and a launch that is held to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import dsforge
from dsforge.launch import facts
from dsforge.plan.types import PRINTED
from tests.support.recipes import SMALL, write

Cli = Callable[..., Any]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSFORGE_RUNS", str(tmp_path / "runs"))
    return write(tmp_path)


def test_a_lock_holds_recipe_plan_versions_and_hashes(cli: Cli, recipe: Path, tmp_path: Path):
    shown = cli("lock", recipe)
    assert shown.code == 0, shown.err
    text = recipe.with_suffix(".lock").read_text("utf-8")
    lock = json.loads(text)
    assert text == json.dumps(lock, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    assert lock["recipe"]["optimizer"]["weight_decay"] == 0.1
    told = cli("plan", recipe, "--json").json
    assert lock["plan"] == {key: value for key, value in told.items() if key not in PRINTED}
    cli("render", recipe, "-o", tmp_path / "bundle")
    hashes = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / "bundle").iterdir()}
    assert lock["bundle"] == hashes
    assert lock["plan_sha256"] == hashes["plan.json"]
    assert lock["versions"]["dsforge"] == dsforge.__version__
    assert lock["versions"]["torch"] == metadata.version("torch").partition("+")[0]


def test_where_the_engines_are_not_installed_their_pins_are_locked(
    cli: Cli, recipe: Path, monkeypatch: pytest.MonkeyPatch
):
    pins = {"deepspeed": "0.19.8", "megatron-core": "0.16.1", "torch": "2.13.0"}
    monkeypatch.setattr(facts, "versions", lambda: {"python": "3.11.0", "dsforge": "9"})
    assert cli("lock", recipe, "--json").json["versions"] == {"dsforge": "9", **pins}


def test_place_and_environment_change_no_byte(
    cli: Cli, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With a warning, whose place is told in the plan: the folder must not be."""
    recipe.write_text(SMALL.replace("micro: 2", "micro: 4"))
    cli("lock", recipe, "-o", "a.lock")
    cli("render", "recipe.yaml", "-o", "bundle")
    elsewhere = tmp_path / "deep" / "er"
    elsewhere.mkdir(parents=True)
    (elsewhere / "recipe.yaml").write_bytes(recipe.read_bytes())
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("LANG", "tr_TR")
    cli("lock", "recipe.yaml", "-o", "b.lock")
    first, second = tmp_path / "a.lock", elsewhere / "b.lock"
    assert '"DSF131"' in first.read_text()
    assert first.read_bytes() == second.read_bytes()
    assert cli("render", "recipe.yaml", "--check", "-o", tmp_path / "bundle").code == 0


@pytest.mark.parametrize(
    "words", [("render", "-o", "bundle"), ("lock",), ("launch", "--locked", "--dry-run")]
)
def test_what_is_kept_does_not_depend_on_the_environment(
    cli: Cli, recipe: Path, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe.write_text(SMALL.replace("global: 32", 'global: "${GB:32}"'))
    assert cli("lock", recipe).code == 0
    assert cli(words[0], recipe, *words[1:]).code == 0
    monkeypatch.setenv("GB", "64")
    assert cli(words[0], recipe, *words[1:]).code == 0
    assert json.loads(recipe.with_suffix(".lock").read_text())["recipe"]["batch"]["global"] == 32
    assert cli("plan", recipe, "--json").json["batch"]["global_size"] == 64
    monkeypatch.setenv("DSFORGE__BATCH__MICRO", "1")
    refused = cli(words[0], recipe, *words[1:])
    assert refused.code == 2
    assert refused.err.startswith("error[DSF024]: ")
    assert "--> environment variable `DSFORGE__BATCH__MICRO`" in refused.err
    monkeypatch.delenv("DSFORGE__BATCH__MICRO")
    recipe.write_text(SMALL.replace("global: 32", 'global: "${GB}"'))
    refused = cli(words[0], recipe, *words[1:])
    assert (refused.code, refused.err[:15]) == (2, "error[DSF005]: ")
    assert cli("plan", recipe).code == 0


def test_a_launch_is_held_to_its_lock(
    cli: Cli, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    missing = cli("launch", recipe, "--locked", "--dry-run")
    assert (missing.code, missing.err[:15]) == (2, "error[DSF080]: ")
    cli("lock", recipe)
    assert cli("launch", recipe, "--locked", "--dry-run").code == 0
    other = cli("launch", recipe, "train.seed=1", "batch.micro=1", "--locked", "--dry-run")
    assert (other.code, other.out) == (1, "")
    told = [line for line in other.err.splitlines() if line.startswith("error")]
    assert told == [
        "error[DSF081]: recipe batch.micro: locked 2, now 1",
        "error[DSF081]: recipe train.seed: locked 1234, now 1",
    ]
    monkeypatch.setattr(facts, "versions", lambda: {"dsforge": dsforge.__version__, "deepspeed": "0.18.0"})
    engines = cli("launch", recipe, "--locked", "--dry-run", "--json")
    assert engines.code == 1
    assert 'versions deepspeed: locked "0.19.8", now "0.18.0"' in engines.err
    assert not (tmp_path / "runs").exists()


def test_a_lock_of_another_name(cli: Cli, recipe: Path):
    cli("lock", recipe, "-o", "other.lock")
    assert cli("launch", recipe, "--lock", "other.lock", "--dry-run").code == 0
    assert cli("launch", recipe, "--lock", "other.lock", "--dry-run", "train.seed=1").code == 1


def test_a_changed_plan_or_bundle_is_named(cli: Cli, recipe: Path):
    """As if another build planned or rendered the same recipe otherwise."""
    from dsforge.base.canonical import sha256_value

    path = recipe.with_suffix(".lock")
    cli("lock", recipe)
    lock = json.loads(path.read_text())
    lock["bundle"]["launch.sh"] = "0" * 64
    lock["plan"]["batch"]["micro"] = 1
    lock["plan_sha256"] = sha256_value(lock["plan"])
    path.write_text(json.dumps(lock))
    shown = cli("lock", recipe, "--check", "--json")
    assert shown.code == 1
    assert [one["message"] for one in shown.json["findings"]] == [
        "plan batch.micro: locked 1, now 2",
        "bundle launch.sh differs",
    ]
    lock["plan"]["batch"]["micro"] = 3
    path.write_text(json.dumps(lock))
    assert "was changed by hand" in cli("lock", recipe, "--check").err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a lock of dsforge"),
        ("[]", "is not a lock of dsforge"),
        ('{"schema_version": 1}', "is not a lock of dsforge"),
        ('{"schema_version": 7}', "is a lock of version 7, this build reads 1"),
    ],
)
def test_damaged_locks(cli: Cli, recipe: Path, text: str, message: str):
    recipe.with_suffix(".lock").write_text(text)
    shown = cli("lock", recipe, "--check")
    assert shown.code == 2
    assert message in shown.err


def test_check_follows_the_recipe(cli: Cli, recipe: Path):
    cli("lock", recipe)
    assert cli("lock", recipe, "--check").out.startswith(f"{recipe.with_suffix('.lock')}: is current")
    recipe.write_text("# a comment\n" + SMALL)
    assert cli("lock", recipe, "--check").code == 0
    recipe.write_text(SMALL.replace("lr: 3.0e-3", "lr: 1.0e-3"))
    assert cli("lock", recipe, "--check").code == 1


def test_a_hostfile_is_part_of_the_bundle(cli: Cli, recipe: Path, tmp_path: Path):
    recipe.write_text(SMALL.replace("gpu: cpu}", "gpu: cpu, hostfile: hosts}"))
    (tmp_path / "hosts").write_text("node1 slots=8\n")
    cli("lock", recipe)
    (tmp_path / "hosts").write_text("node2 slots=8\n")
    shown = cli("lock", recipe, "--check")
    assert (shown.code, "bundle hostfile differs" in shown.err) == (1, True)


@pytest.mark.parametrize(
    ("command", "code"), [("lock recipe.yaml -o file/x.lock", "DSF066"), ("init -o file/x.yaml", "DSF062")]
)
def test_what_cannot_be_written_is_told_with_the_way_out(cli: Cli, recipe: Path, command: str, code: str):
    recipe.with_name("file").write_text("")
    shown = cli(*command.split())
    assert shown.code == 3
    assert f"error[{code}]: cannot write file/x." in shown.err
    assert "hint: free space or permit writing there, or name another file with --out" in shown.err
