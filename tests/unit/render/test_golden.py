"""Artefacts byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dsforge.ops.bundles import bundle_of
from dsforge.recipe.load import load_recipe
from tests.support.recipes import ROOT

GOLDEN = ROOT / "tests" / "golden"
NAMES = ("smoke", "llama3-8b-8a100", "gpt2-8gpu", "hf-finetune")
FILES = ("ds_config.json", "environment", "hostfile", "launch.sh", "plan.json")


@pytest.mark.parametrize("name", NAMES)
def test_bundles_are_byte_for_byte_the_golden_ones(name: str, golden: Callable[[Path, str], None]):
    bundle = bundle_of(load_recipe(ROOT / "recipes" / f"{name}.yaml"))
    assert sorted(bundle.files) == sorted(FILES)
    for file, text in bundle.files.items():
        golden(GOLDEN / name / file, text)


def test_no_golden_file_is_left_over():
    there = {str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*") if path.is_file()}
    assert there == {f"{name}/{file}" for name in NAMES for file in FILES}


@pytest.mark.parametrize("name", NAMES)
def test_rendering_twice_gives_the_same_bytes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = ROOT / "recipes" / f"{name}.yaml"
    first = bundle_of(load_recipe(recipe)).files
    elsewhere = tmp_path / recipe.name
    elsewhere.write_bytes(recipe.read_bytes())
    monkeypatch.setenv("LANG", "tr_TR")
    monkeypatch.setenv("DSFORGE_RUNS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert bundle_of(load_recipe(elsewhere)).files == first


def test_written_files_carry_their_mode(tmp_path: Path):
    bundle = bundle_of(load_recipe(ROOT / "recipes" / "smoke.yaml"))
    bundle.write(tmp_path / "b")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "b").iterdir()}
    assert modes == {name: 0o755 if name == "launch.sh" else 0o644 for name in FILES}
    assert bundle.drift(tmp_path / "b") == []
