"""Artefacts byte for byte."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dsforge.ops.bundles import bundle_of
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import load_recipe
from dsforge.render.launchers import LAUNCHERS
from tests.support.recipes import ROOT, SHIPPED

GOLDEN = ROOT / "tests" / "golden"
NAMES = [path.stem for path in SHIPPED]
FILES = {"environment", "launch.sh", "plan.json"}
"""Those of every bundle; `hostfile` comes on top where it is not a scheduler that chooses the hosts."""


@pytest.mark.parametrize("name", NAMES)
def test_bundles_are_byte_for_byte_the_golden_ones(name: str, golden: Callable[[Path, str], None]):
    bundle = bundle_of(load_recipe(ROOT / "recipes" / f"{name}.yaml"))
    reads = {"ds_config.json"}
    if name.endswith("megatron-lm"):
        reads = {"program.json"}
    elif name.endswith(("fsdp", "ddp", "interleaved-256h100", "mixtral-8x7b-64h100", "128k-64h100")):
        reads = set()
    others = {"slurm": set(), "pbs": set(), "kubernetes": {"job.json"}}.get(
        name.rpartition("-")[2], {"hostfile"}
    )
    assert set(bundle.files) == FILES | reads | others
    for file, text in bundle.files.items():
        golden(GOLDEN / name / file, text)


def test_no_golden_file_is_left_over():
    there = {str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*") if path.is_file()}
    made = {name: bundle_of(load_recipe(ROOT / "recipes" / f"{name}.yaml")) for name in NAMES}
    assert there == {f"{name}/{file}" for name, bundle in made.items() for file in bundle.files}


def test_every_launcher_has_a_golden_bundle():
    plans = [json.loads((GOLDEN / name / "plan.json").read_text()) for name in NAMES]
    assert {plan["launch"]["launcher"] for plan in plans} == set(LAUNCHERS)


def test_every_hostfile_is_used():
    named = {Path(make_plan(load_recipe(path)).hostfile or "").name for path in SHIPPED}
    assert named - {""} == {path.name for path in (ROOT / "hostfiles").iterdir()}


@pytest.mark.parametrize("name", NAMES)
def test_rendering_twice_gives_the_same_bytes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = ROOT / "recipes" / f"{name}.yaml"
    first = bundle_of(load_recipe(recipe)).files
    for folder in ("recipes", "hostfiles"):
        shutil.copytree(ROOT / folder, tmp_path / "else where" / folder)
    elsewhere = tmp_path / "else where" / "recipes" / recipe.name
    monkeypatch.setenv("LANG", "tr_TR")
    monkeypatch.setenv("DSFORGE_RUNS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert bundle_of(load_recipe(elsewhere)).files == first


def test_written_files_carry_their_mode(tmp_path: Path):
    bundle = bundle_of(load_recipe(ROOT / "recipes" / "smoke.yaml"))
    bundle.write(tmp_path / "b")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "b").iterdir()}
    assert modes == {
        name: 0o755 if name == "launch.sh" else 0o644 for name in FILES | {"ds_config.json"} | {"hostfile"}
    }
    assert bundle.drift(tmp_path / "b") == []
