"""The wheel carries everything: installed into a new environment it works from any folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from dsforge import __version__
from tests.support.recipes import ROOT

SHIPPED = ("templates", "recipes", "hostfiles")
BUNDLE = ["ds_config.json", "environment", "hostfile", "launch.sh", "plan.json"]
Run = Callable[..., subprocess.CompletedProcess[str]]


def _build(source: Path, target: str, folder: Path) -> Path:
    words = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(words, cwd=source, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment into which pip put the wheel.

    It borrows the dependencies of the running one, without which it would take minutes: their folder comes
    after its own on the path, and an editable install there is not followed.
    """
    home = tmp_path_factory.mktemp("environment")
    venv.create(home)
    (own,) = home.glob("lib/python*/site-packages")
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    programs = home / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet"]
    words = [*pip, "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run(words, check=True, capture_output=True)
    borrowed = Path(sysconfig.get_path("scripts"), "deepspeed").read_text()
    (programs / "deepspeed").write_text(re.sub(r"^#!.*", f"#!{programs / 'python'}", borrowed, count=1))
    (programs / "deepspeed").chmod(0o755)
    return programs


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Run a program of the new environment in a folder of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DSFORGE_") and name != "PYTHONPATH"
    }

    def start(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(installed / program), *words]
        return subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)

    return start


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_wheel_holds_the_package_its_folders_and_its_license(wheel: Path, tmp_path: Path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    package = tmp_path / "dsforge"
    code = {name for name in _files(package) if name.endswith((".py", ".yaml")) and name[0] != "_"}
    ours = {name for name in _files(ROOT / "dsforge") if name.endswith((".py", ".yaml")) and name[0] != "_"}
    assert code == ours
    for name in SHIPPED:
        assert _files(package / "_shared" / name) == _files(ROOT / name)
    assert (package / "py.typed").exists()
    for recipe in (package / "_shared" / "recipes").iterdir():
        first, _, schema = recipe.read_text("utf-8").partition("\n")[0].partition("$schema=")
        assert first == "# yaml-language-server: "
        assert (recipe.parent / schema).is_file()
    about = tmp_path / f"dsforge-{__version__}.dist-info"
    assert (about / "licenses" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    metadata = Metadata.from_email((about / "METADATA").read_bytes(), validate=True)
    assert (metadata.name, str(metadata.version)) == ("dsforge", __version__)
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.description_content_type == "text/markdown"
    assert {path.name for path in tmp_path.iterdir()} == {"dsforge", about.name}


def test_the_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path):
    made = _build(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(made) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    again = _build(source, "wheel", tmp_path / "again")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {name: one.read(name) for name in one.namelist()} == {
            name: other.read(name) for name in other.namelist()
        }
    assert {"Makefile", "constraints.txt", "LICENSE", "docs", "tests"} <= {
        one.name for one in source.iterdir()
    }


def test_installed_it_writes_checks_plans_and_renders(run: Run, installed: Path, tmp_path: Path):
    where = run("python", "-c", "import dsforge; print(dsforge.__file__)").stdout
    assert where.startswith(str(installed.parent))
    for words in (
        ("init", "--model", "gpt2", "--gpus", "4", "--gpu", "cpu", "-o", "recipe.yaml"),
        ("validate", "recipe.yaml"),
        ("plan", "recipe.yaml"),
        ("render", "recipe.yaml", "-o", "bundle"),
    ):
        done = run("dsforge", *words)
        assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "bundle").iterdir()) == BUNDLE
    assert run("dsforge", "--version").stdout == f"dsforge {__version__}\n"


def test_installed_it_renders_its_own_recipes_as_the_checkout_does(run: Run, installed: Path, tmp_path: Path):
    recipes = sorted(installed.parent.glob("lib/python*/site-packages/dsforge/_shared/recipes/*.yaml"))
    code = """if True:
        import pathlib, sys
        from dsforge.cli.main import main
        sys.exit(max(main(["render", one, "-o", pathlib.Path(one).stem]) for one in sys.argv[1:]))
    """
    done = run("python", "-c", code, *map(str, recipes))
    assert done.returncode == 0, done.stderr
    golden = ROOT / "tests" / "golden"
    assert {name: (tmp_path / name).read_bytes() for name in _files(tmp_path)} == {
        name: (golden / name).read_bytes() for name in _files(golden)
    }


@pytest.mark.e2e
def test_installed_it_launches_the_smoke_recipe(run: Run, installed: Path, tmp_path: Path):
    (recipe,) = installed.parent.glob("lib/python*/site-packages/dsforge/_shared/recipes/smoke.yaml")
    (tmp_path / "smoke.yaml").write_text(recipe.read_text("utf-8"))
    changes = ("cluster.gpus_per_node=2", "parallel.tp=1", "parallel.dp=1", "batch.global=8", "train.steps=5")
    done = run("dsforge", "launch", "smoke.yaml", *changes, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["losses"]) == 5
    manifest = json.loads((Path(result["run"]) / "manifest.json").read_text())
    assert Path(result["run"]).parent == tmp_path / "runs"
    assert manifest["versions"]["dsforge"] == __version__
    reports = "".join(path.read_text() for path in Path(result["run"]).rglob("*.jsonl"))
    assert str(ROOT) not in reports
