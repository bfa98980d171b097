from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.ops.data_check import check_data
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import load_recipe
from tests.support.recipes import SMALL, write

BLEND = SMALL.replace("steps: 30", "steps: 30, eval_every: 10") + (
    "data:\n  train: [[1, data/a], [2, data/b]]\n  valid: [[1, data/c], [1, data/d]]\n"
)


def pair(folder: Path, name: str) -> None:
    (folder / "data").mkdir(exist_ok=True)
    for suffix in (".bin", ".idx"):
        (folder / "data" / f"{name}{suffix}").touch()


@pytest.mark.parametrize(("missing", "line", "column"), [("b", 10, 24), ("c", 11, 11), ("d", 11, 24)])
def test_every_set_of_a_blend_must_be_there(tmp_path: Path, missing: str, line: int, column: int):
    loaded = load_recipe(write(tmp_path, BLEND))
    plan = make_plan(loaded)
    for name in "abcd".replace(missing, ""):
        pair(tmp_path, name)
    with pytest.raises(DsforgeError, match=f"no data file {tmp_path}/data/{missing}.idx") as caught:
        check_data(plan, loaded, tmp_path)
    assert caught.value.code == "DSF045"
    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column) == (line, column)
    pair(tmp_path, missing)
    check_data(plan, loaded, tmp_path)


def test_the_tokenizer_beside_any_set_must_fit(tmp_path: Path):
    loaded = load_recipe(write(tmp_path, BLEND))
    for name in "abcd":
        pair(tmp_path, name)
    (tmp_path / "data" / "d.tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 512}}}')
    with pytest.raises(DsforgeError, match="id 512, the model's vocabulary is 512") as caught:
        check_data(make_plan(loaded), loaded, tmp_path)
    assert caught.value.code == "DSF046"
