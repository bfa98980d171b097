"""What a recipe names as its program's folder is looked at where it is, and told where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.ops.checkout_check import check_recipe_checkout
from dsforge.recipe.load import load_recipe
from tests.support.recipes import write

RECIPE = """\
version: 1
model: {arch: gpt, layers: 4, hidden: 64, heads: 4, vocab: 512}
cluster: {gpus_per_node: 2, gpu: cpu}
batch: {global: 8, seq_len: 64}
trainer: external
external:
  flavour: script
  path: PATH
  entry: train.py
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "train.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "severity", "says"),
    [
        ("file", "error", "is no folder"),
        ("loop", "error", "is no folder: Too many levels of symbolic links"),
        ("/dev/zero", "error", "/dev/zero is no folder"),
        ("file/below", "error", "is no folder"),
        ("empty", "error", "empty has no file train.py"),
        ("absent", "warning", "No such file or directory"),
    ],
)
def test_a_folder_that_is_none(here: Path, path: str, severity: str, says: str):
    loaded = load_recipe(write(here, RECIPE.replace("PATH", path)))
    (found,) = check_recipe_checkout(loaded)
    assert (found.code, found.severity, found.key) == ("DSF215", severity, "external.path")
    assert says in found.message
    assert found.place is not None
    assert found.place.line == 8


def test_a_script_that_is_there(here: Path):
    assert check_recipe_checkout(load_recipe(write(here, RECIPE.replace("PATH", "whole")))) == []
