"""A damaged script or configuration ends in findings, never in an error of ours."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.foreign.text import kind_of
from dsforge.ops.foreign_check import check_foreign
from dsforge.ops.foreign_init import Wanted, import_recipe
from tests.support.recipes import ROOT

FILES = sorted(
    path
    for path in (ROOT / "tests/data/foreign").iterdir()
    if path.suffix in (".sh", ".sbatch") or path.name.startswith("neox")
)
_SCRAPS = (
    "$",
    '"',
    "'",
    "(",
    ")",
    "{",
    "}",
    "\\",
    "`",
    "=",
    "[",
    "--",
    " 0 ",
    "-1",
    "1e999",
    "$((",
    "<<",
    "\n",
    "x",
)


def damaged(text: str, pick: random.Random) -> str:
    at = pick.randrange(len(text))
    match pick.randrange(4):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + text[at + pick.randrange(1, 40) :]
        case 2:
            lines = text.split("\n")
            del lines[pick.randrange(len(lines))]
            return "\n".join(lines)
    return text[:at] + pick.choice(_SCRAPS) + text[at:]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_damage_is_told(tmp_path: Path, path: Path):
    pick, text = random.Random(path.name), path.read_text("utf-8")
    kind = kind_of(path)
    changes = ("model.vocab=512", "data.train=/data/a", "data.tokenizer=/data/t.json", "external.path=/src")
    broken = tmp_path / path.name
    for _ in range(12):
        broken.write_text(damaged(text, pick), "utf-8")
        for act in (
            lambda: check_foreign(broken, kind, None),
            lambda: import_recipe(broken, kind, Wanted(gpu="a100-sxm-80gb", gpus=8, changes=changes)),
        ):
            with contextlib.suppress(DsforgeError):  # anything else is a fault of ours
                act()
