"""The wheel carries everything: installed into an empty folder it plans and renders from anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_an_installed_wheel_finds_its_recipes_and_templates(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    shipped = {path.name for path in (site / "dsforge" / "_shared" / "recipes").iterdir()}
    assert shipped == {path.name for path in (ROOT / "recipes").iterdir()}
    assert any((site / "dsforge" / "_shared" / "hostfiles").iterdir())
    assert (site / "dsforge" / "py.typed").exists()
    for shipped_recipe in (site / "dsforge" / "_shared" / "recipes").iterdir():
        first, _, schema = shipped_recipe.read_text("utf-8").partition("\n")[0].partition("$schema=")
        assert first == "# yaml-language-server: "
        assert (shipped_recipe.parent / schema).is_file()

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    recipes = sorted((site / "dsforge" / "_shared" / "recipes").iterdir())
    code = """if True:
        import dsforge, pathlib, sys
        from dsforge.cli.main import main
        sys.stderr.write(dsforge.__file__)
        sys.exit(max(main(["render", one, "-o", pathlib.Path(one).stem]) for one in sys.argv[1:]))
    """
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, recipes)],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(str(site))
    made = {path.relative_to(elsewhere): path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    golden = ROOT / "tests" / "golden"
    assert made == {
        path.relative_to(golden): path.read_bytes() for path in golden.rglob("*") if path.is_file()
    }
