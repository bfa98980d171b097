"""What may be imported, printed and written where, over the whole package."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsforge.catalog.tables import errors
from dsforge.rules.registry import rules
from tests.support.recipes import ROOT

PACKAGE = ROOT / "dsforge"
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("torch", "deepspeed", "megatron", "transformers", "numpy", "tokenizers")


def _modules_after(*words: str) -> set[str]:
    """Run a command in a new interpreter and return the names of all modules it loaded."""
    program = (
        "import json, sys\n"
        "from dsforge.cli.main import main\n"
        f"code = main({list(words)!r})\n"
        "assert code == 0, code\n"
        "sys.stderr.write('MODULES' + json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return set(json.loads(done.stderr.rpartition("MODULES")[2]))


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("validate", "recipes/smoke.yaml", "tests/data/foreign/bloom_like.json"),
        ("plan", "recipes/gpt3-175b-1024a100.yaml"),
        ("render", "recipes/smoke.yaml", "--check", "--out", "tests/golden/smoke"),
        ("init",),
        ("config", "show", "recipes/smoke.yaml"),
        ("diff", "recipes/smoke.yaml", "recipes/smoke.yaml"),
        ("schema",),
        ("rule",),
        ("presets", "list"),
        ("runs", "list", "--runs", "nowhere"),
    ],
    ids=lambda words: words[0],
)
def test_looking_loads_no_engine(words: tuple[str, ...]):
    loaded = {name.partition(".")[0] for name in _modules_after(*words)}
    assert "dsforge" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_help_loads_no_room_below_the_command_line():
    loaded = _modules_after("--help")
    rooms = {name.split(".")[1] for name in loaded if name.startswith("dsforge.")}
    assert rooms <= {"base", "cli"}
    assert loaded.isdisjoint({"pydantic", "ruamel", "jinja2"})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_small_and_print_nothing(path: Path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 400
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    names = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
    if path != PACKAGE / "cli" / "output.py":
        assert "print" not in names


def test_error_codes_are_dsf_and_three_digits():
    codes = re.compile(r'"([A-Z]{1,4}[0-9]{3})"')
    found = [(path, code) for path in FILES for code in codes.findall(path.read_text("utf-8"))]
    assert len(found) > 50
    wrong = [(path, code) for path, code in found if not re.fullmatch(r"DSF[0-9]{3}", code)]
    assert [f"{path.relative_to(ROOT)} {code}" for path, code in wrong] == []


def test_one_code_means_one_thing():
    """A code of an error is raised in one room; rules have codes of their own."""
    rooms: dict[str, set[str]] = {}
    for path in FILES:
        for code in re.findall(r'DsforgeError\(\s*"(DSF[0-9]{3})"', path.read_text("utf-8")):
            rooms.setdefault(code, set()).add(path.relative_to(PACKAGE).parts[0])
    assert {code: found for code, found in rooms.items() if len(found) > 1} == {}

    assert set(rooms).isdisjoint(rules())


def test_the_package_names_no_machine():
    words = re.compile(r"/home/[a-z]|/root/|TODO|FIXME|XXX")
    shipped = [path for name in ("templates", "recipes") for path in (ROOT / name).rglob("*")]
    texts = [path for path in (*FILES, *PACKAGE.rglob("*.yaml"), *shipped) if path.is_file()]
    assert [str(path) for path in texts if words.search(path.read_text("utf-8"))] == []


def test_every_code_of_the_package_is_explained():
    """`dsforge rule CODE` answers for each code that an error can print, and for no other."""
    written = {
        code
        for path in PACKAGE.rglob("*.py")
        for code in re.findall(r"\bDSF[0-9]{3}\b", path.read_text("utf-8"))
    }
    assert written == set(rules()) | set(errors())
    assert not set(rules()) & set(errors())
