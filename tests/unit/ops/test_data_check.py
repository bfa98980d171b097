from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.ops.data_check import check_data
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import LoadedRecipe, load_recipe
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


def tokenizer(folder: Path, name: str, text: str) -> None:
    (folder / "data" / f"{name}.tokenizer.json").write_text(text)


SMALL_IDS = '{"model": {"vocab": {"a": 0, "b": 1}}}'
LARGE_IDS = '{"model": {"vocab": {"a": 0, "b": 512}}}'


def refused(loaded: LoadedRecipe, folder: Path) -> DsforgeError:
    with pytest.raises(DsforgeError) as caught:
        check_data(make_plan(loaded), loaded, folder)
    assert (caught.value.code, caught.value.exit_code) == ("DSF046", 3)
    return caught.value


def test_the_tokenizer_beside_any_set_must_fit(tmp_path: Path):
    loaded = load_recipe(write(tmp_path, BLEND))
    for name in "abcd":
        pair(tmp_path, name)
    tokenizer(tmp_path, "d", LARGE_IDS)
    fault = refused(loaded, tmp_path)
    assert fault.message == (
        "the tokenizer of data.valid, data/d.tokenizer.json, has id 512, the model's vocabulary is 512"
    )
    assert fault.place is not None
    assert (fault.place.line, fault.place.column) == (11, 24)


@pytest.mark.parametrize(
    ("odd", "key", "place"), [("b", "data.train", (10, 24)), ("c", "data.valid", (11, 11))]
)
@pytest.mark.parametrize("other", [LARGE_IDS, '{"model": {"vocab": {"b": 0, "a": 1}}}'])
def test_sets_of_different_tokenizers_are_never_mixed(
    tmp_path: Path, odd: str, key: str, place: tuple[int, int], other: str
):
    loaded = load_recipe(write(tmp_path, BLEND))
    for name in "abcd":
        pair(tmp_path, name)
        tokenizer(tmp_path, name, other if name == odd else SMALL_IDS)
    fault = refused(loaded, tmp_path)
    assert fault.message.startswith(
        f"the set data/{odd} of {key} was made with another tokenizer than data/a.tokenizer.json"
    )
    assert fault.hint == (
        f"the sets of a recipe share one: `dsforge data prep FILES -o data/{odd} "
        "--tokenizer data/a.tokenizer.json --overwrite`"
    )
    assert fault.place is not None
    assert (fault.place.line, fault.place.column) == place
    # The same numbers in another form of the file are the same tokenizer.
    tokenizer(tmp_path, odd, '{"model": {"vocab": [["a", -1.0], ["b", -2.0]]}, "version": "1.0"}')
    check_data(make_plan(loaded), loaded, tmp_path)


def test_the_tokenizer_that_is_named_is_the_sets(tmp_path: Path):
    text = BLEND + "  tokenizer: data/named.json\n"
    loaded = load_recipe(write(tmp_path, text))
    for name in "abcd":
        pair(tmp_path, name)
    assert "No such file" in refused(loaded, tmp_path).message
    (tmp_path / "data" / "named.json").write_text(SMALL_IDS)
    check_data(make_plan(loaded), loaded, tmp_path)
    tokenizer(tmp_path, "a", '{"model": {"vocab": {"a": 1, "b": 0}}}')
    assert "another tokenizer than data/named.json of data.tokenizer" in refused(loaded, tmp_path).message
    (tmp_path / "data" / "named.json").write_text('{"model": {"vocab": {}}}')
    assert refused(loaded, tmp_path).message.startswith(f"{tmp_path}/data/named.json, the tokenizer of")
