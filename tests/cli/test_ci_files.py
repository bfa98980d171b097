"""The hooks and the workflow that other repositories copy do what they say."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.cli.test_commands import SURFACE
from tests.support.recipes import ROOT, SHIPPED, SMALL, write

HOOKS = {hook["id"]: hook for hook in YAML(typ="safe").load((ROOT / ".pre-commit-hooks.yaml").read_text())}
WORKFLOW: dict[str, Any] = YAML(typ="safe").load((ROOT / "docs" / "how-to" / "dsforge.yml").read_text())
GUIDES = sorted((ROOT / "docs" / "how-to").iterdir())


def _hook(name: str, files: list[str], environ: dict[str, str], folder: Path) -> int:
    chosen = [file for file in files if re.search(HOOKS[name]["files"], file)]
    words = [*shlex.split(HOOKS[name]["entry"]), *chosen]
    return subprocess.run(words, env=environ, cwd=folder, check=False, capture_output=True).returncode


def test_the_hooks_take_this_repositorys_recipes(dsforge: dict[str, str]):
    files = [str(path.relative_to(ROOT)) for path in SHIPPED]
    assert {_hook(name, files, dsforge, ROOT) for name in HOOKS} == {0}


def test_the_hooks_refuse(dsforge: dict[str, str], tmp_path: Path):
    (tmp_path / "recipes").mkdir()
    write(tmp_path / "recipes", SMALL, "good.yaml")
    write(tmp_path / "recipes", SMALL.replace("zero: 1", "zero: 3"), "bad.yaml")
    write(tmp_path, "not: a recipe\n", "other.yaml")
    good, bad, other = "recipes/good.yaml", "recipes/bad.yaml", "other.yaml"
    assert _hook("dsforge-validate", [good, other], dsforge, tmp_path) == 0  # not in a folder of recipes
    assert _hook("dsforge-validate", [good], dsforge, tmp_path) == 0
    assert _hook("dsforge-validate", [good, bad], dsforge, tmp_path) == 1
    lock = ["dsforge", "lock", good]
    subprocess.run(lock, env=dsforge, cwd=tmp_path, check=True, capture_output=True)
    for changed in ("recipes/good.lock", good):
        assert _hook("dsforge-lock", [changed], dsforge, tmp_path) == 0
    write(tmp_path / "recipes", SMALL.replace("lr: 3.0e-3", "lr: 1.0e-3"), "good.yaml")
    for changed in ("recipes/good.lock", good):
        assert _hook("dsforge-lock", [changed], dsforge, tmp_path) == 1


def test_the_check_job_runs_and_finds_drift(dsforge: dict[str, str], tmp_path: Path):
    (tmp_path / "recipes").mkdir()
    recipe = write(tmp_path / "recipes", SMALL, "job.yaml")
    steps = [step for step in WORKFLOW["jobs"]["check"]["steps"] if "name" in step]

    def codes() -> list[int]:
        shell = ["bash", "-e", "-c"]
        return [
            subprocess.run(
                [*shell, step["run"]], env=dsforge, cwd=tmp_path, check=False, capture_output=True
            ).returncode
            for step in steps
        ]

    assert codes() == [0, 0, 0]
    for words in (["render", "--out", "bundles/job"], ["lock"]):
        subprocess.run(["dsforge", *words, "recipes/job.yaml"], env=dsforge, cwd=tmp_path, check=True)
    assert codes() == [0, 0, 0]
    recipe.write_text(SMALL.replace("lr: 3.0e-3", "lr: 1.0e-3"))
    assert codes() == [0, 0, 1]
    recipe.write_text(SMALL.replace("zero: 1", "zero: 3"))
    assert codes() == [1, 1, 1]


def test_the_guides_use_commands_that_exist():
    for path in (*GUIDES, ROOT / ".pre-commit-hooks.yaml"):
        text = path.read_text("utf-8")
        for first, rest in re.findall(r"(?:^|[`;&|'\s])dsforge ([a-z]+)((?: [^`;\n|]*)?)", text):
            command = first if first in SURFACE else f"{first} {rest.split()[0] if rest else ''}"
            assert command in SURFACE, (path.name, command)
            ours = rest.partition(" -- ")[0]
            for option in re.findall(r"(?<!\S)--[a-z-]+", ours):
                assert option in SURFACE[command].split(), (path.name, command, option)


def test_the_pins_of_the_workflow_are_the_packages():
    pins = re.findall(r"torch==([0-9.]+)", (ROOT / "docs" / "how-to" / "dsforge.yml").read_text())
    assert pins == re.findall(r'"torch==([0-9.]+)"', (ROOT / "pyproject.toml").read_text())


def test_every_pinned_version_installs_on_the_oldest_python():
    from importlib import metadata

    from packaging.specifiers import SpecifierSet

    pins = [
        line.partition("==")[0]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    ]
    too_new = {}
    for name in pins:
        try:
            wanted = metadata.metadata(name)["Requires-Python"] or ""
        except metadata.PackageNotFoundError:
            continue  # the CUDA build's own packages are not on a machine without a GPU
        if "3.11.0" not in SpecifierSet(wanted):
            too_new[name] = wanted
    assert len(pins) > 50
    assert not too_new
