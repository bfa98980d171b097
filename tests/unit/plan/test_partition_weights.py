"""Stages dealt out by measured times: where the file comes in, what it changes, and when it is refused."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.catalog.families import Traits
from dsforge.layout.shape import Shape, resolve_shape
from dsforge.layout.timed import conditions
from dsforge.ops.lock import differences, make_lock
from dsforge.ops.shrink import shrink
from dsforge.ops.smoke import shrunk_recipe
from dsforge.plan.resolve import make_plan
from dsforge.recipe.document import Document
from dsforge.recipe.load import check, load_recipe
from tests.support.recipes import SMALL, findings_of, small, write

PIECE = {"forward_seconds": 0.001, "backward_seconds": 0.002, "spread": 0.1}
TIMES: dict[str, Any] = {
    "kind": "layer-times",
    "schema_version": 2,
    "device": "a machine",
    "trainer": "forge",
    "micro": 2,
    "repeats": 15,
    "embedding": PIECE,
    "layer": PIECE,
    # The head takes as long as five layers.
    "head": {"forward_seconds": 0.005, "backward_seconds": 0.010, "spread": 0.1},
    "of": conditions(
        resolve_shape(check(Document(data=small())).model, 64),
        seq_len=64,
        precision="fp32",
        recompute="none",
        gpu="cpu",
    ),
}
RECIPE = SMALL.replace("layers: 4", "layers: 9").replace(
    "zero: 1}", "zero: 1, partition: measured, partition_weights: times.json}"
)


def _written(folder: Path, times: dict[str, Any] | str = TIMES, recipe: str = RECIPE) -> Path:
    (folder / "times.json").write_text(times if isinstance(times, str) else json.dumps(times), "utf-8")
    return write(folder, recipe)


def test_stages_follow_the_measured_times_and_the_plan_keeps_their_hash(tmp_path: Path):
    recipe = _written(tmp_path)
    measured = make_plan(load_recipe(recipe)).layout
    # Embedding and 6 layers against 3 and the head: 7 and 8 pieces of time; any other deal makes one longer.
    assert [stage.layers for stage in measured.stages] == [6, 3]
    by_parameters = make_plan(
        load_recipe(recipe, ["parallel.partition=parameters", "parallel.partition_weights=null"])
    ).layout
    assert [stage.layers for stage in by_parameters.stages] == [5, 4]
    assert by_parameters.partition_weights_sha256 is None
    lock = make_lock(load_recipe(recipe))
    (tmp_path / "times.json").write_text(json.dumps({**TIMES, "embedding": TIMES["head"]}), "utf-8")
    told = differences(lock, make_lock(load_recipe(recipe)))
    assert any(one.startswith("plan layout.partition_weights_sha256: locked ") for one in told)


def test_diff_tells_other_times_under_the_same_name(cli: Any, tmp_path: Path):
    recipe = _written(tmp_path)
    assert cli("lock", recipe).code == 0
    lock = recipe.with_suffix(".lock")
    assert cli("diff", recipe, lock).code == 0
    before = json.loads(lock.read_text("utf-8"))["plan"]["layout"]["partition_weights_sha256"]
    (tmp_path / "times.json").write_text(json.dumps({**TIMES, "repeats": 16}), "utf-8")
    after = make_plan(load_recipe(recipe)).layout.partition_weights_sha256
    assert cli("diff", recipe, lock, "--json").json["differences"] == [
        {"key": "(measured times)", "a": after, "b": before, "consequence": "execution"}
    ]


def test_equal_content_in_other_words_is_the_same_file(tmp_path: Path):
    hashes = set()
    for text in (json.dumps(TIMES), json.dumps(TIMES, indent=4, sort_keys=True)):
        hashes.add(make_plan(load_recipe(_written(tmp_path, text))).layout.partition_weights_sha256)
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"hidden": 128}, "hidden 128, not 64"),
        ({"precision": "bf16"}, "precision bf16, not fp32"),
        ({"gpu": "a100-sxm-80gb"}, "gpu a100-sxm-80gb, not cpu"),
        ({"recompute": "full", "seq_len": 32}, "recompute full, not none, seq_len 32, not 64"),
    ],
)
def test_times_of_something_else_are_refused(tmp_path: Path, change: dict[str, Any], told: str):
    recipe = _written(tmp_path, {**TIMES, "of": {**TIMES["of"], **change}})
    (found,) = [one for one in findings_of(recipe) if one.code == "DSF795"]
    assert told in found.message
    assert "dsforge tune --layers" in str(found.hint)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("model.activation=geglu", "activation swiglu, not geglu"),
        ("model.parallel_residual=true", "parallel_residual false, not true"),
        ("model.rotary_fraction=0.5", "rotary_fraction 1.0, not 0.5"),
        ("model.window=16", "window null, not 16"),
        ("model.arch=qwen3", "qk_norm false, not true"),
        ("model.arch=qwen2", "qkv_bias false, not true"),
    ],
)
def test_times_of_a_layer_made_otherwise_are_refused(tmp_path: Path, change: str, told: str):
    (found,) = [one for one in findings_of(_written(tmp_path), change) if one.code == "DSF795"]
    assert found.message == f"the times were measured with {told}"


def test_every_field_of_a_shape_is_compared_but_those_that_time_does_not_know():
    wanted = {one.name for kind in (Shape, Traits) for one in fields(kind)}
    unknown = {"name", "arch", "layers", "nominal_parameters", "times", "norm_eps", "rope_theta", "traits"}
    assert wanted - set(TIMES["of"]) == unknown


def test_a_trainer_without_stages_says_nothing_of_the_times(tmp_path: Path):
    parallel = ("parallel.zero=0", "parallel.tp=1", "parallel.pp=1", "parallel.dp=8")
    found = findings_of(_written(tmp_path), "trainer=ddp", *parallel)
    assert {one.code for one in found} == {"DSF140"}
    assert "LayerTimes" not in "".join(one.message for one in found)


def test_times_that_no_partition_uses_are_refused_not_ignored(tmp_path: Path):
    recipe = _written(tmp_path, recipe=RECIPE.replace("partition: measured, ", ""))
    (found,) = [one for one in findings_of(recipe) if one.code == "DSF795"]
    assert str(found.fix) == "parallel.partition=measured"


def test_with_experts_both_keys_go_and_nothing_brings_one_back(cli: Any, tmp_path: Path):
    recipe = (
        RECIPE.replace("tp: 2, pp: 2, dp: 2", "pp: 2, dp: 4")
        .replace("arch: llama", "arch: mixtral")
        .replace("ffn_hidden: 176, vocab: 512", "vocab: 512, experts: {count: 4, active: 2, ffn_hidden: 96}")
    )
    path = _written(tmp_path, recipe=recipe + "trainer: megatron-core\n")
    told = [str(one.fix) for one in findings_of(path) if one.code == "DSF795"]
    assert told == ["parallel.partition=parameters", "parallel.partition_weights=null"]
    fixed = cli("validate", path, "--fix")
    assert (fixed.code, "DSF795" in fixed.err) == (0, False)
    assert "partition: parameters, partition_weights: null" in path.read_text()


@pytest.mark.parametrize("trainer", ["transformers", "fsdp", "ddp"])
@pytest.mark.parametrize(
    "deal",
    [
        "uniform",
        "measured",
        "parameters, partition_weights: times.json",
        "measured, partition_weights: times.json",
    ],
)
def test_a_trainer_without_stages_takes_no_way_to_deal_them_out(
    cli: Any, tmp_path: Path, trainer: str, deal: str
):
    parallel = f"{{dp: 8, zero: auto, partition: {deal}}}"
    path = _written(tmp_path, recipe=f"{_without_parallel(SMALL)}parallel: {parallel}\ntrainer: {trainer}\n")
    codes = {one.code for one in findings_of(path)}
    assert "DSF140" in codes
    assert "DSF795" not in codes
    assert cli("validate", path, "--fix").code == 0
    assert make_plan(load_recipe(path)).layout.partition == "parameters"


def _without_parallel(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("parallel:"))


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ("[]", "DSF796"),
        ("{", "DSF796"),
        ("{}", "is not what `dsforge tune --layers` writes"),
        ({**TIMES, "schema_version": 1}, "schema version 1"),
        ({**TIMES, "repeats": "many"}, "is not whole: repeats"),
        ({**TIMES, "layer": {**PIECE, "forward_seconds": -1.0}}, "layer.forward_seconds is -1.0"),
        ({**TIMES, "layer": dict.fromkeys(PIECE, 0.0)}, "a layer takes no time"),
    ],
)
def test_a_file_that_is_none_is_an_error_with_its_place(tmp_path: Path, times: Any, told: str):
    recipe = _written(tmp_path, times)
    with pytest.raises(DsforgeError) as caught:
        make_plan(load_recipe(recipe))
    assert told in f"{caught.value.code}: {caught.value.message}"
    assert caught.value.place is not None
    assert caught.value.place.line == 5


def test_a_shrunken_model_is_dealt_out_by_parameters_and_says_so(tmp_path: Path):
    loaded = load_recipe(_written(tmp_path))
    small = shrink(loaded.recipe, make_plan(loaded), 8)
    (told,) = [one for one in small.changes if one.key == "parallel.partition"]
    assert (told.recipe, told.used) == ("measured", "parameters")
    assert make_plan(shrunk_recipe(loaded, small)).layout.partition == "parameters"


def test_a_recipe_that_extends_another_finds_its_file(tmp_path: Path):
    (tmp_path / "base").mkdir()
    _written(tmp_path / "base")
    own = write(tmp_path, "version: 1\nextends: base/recipe.yaml\n", "own.yaml")
    assert [stage.layers for stage in make_plan(load_recipe(own)).layout.stages] == [6, 3]


def test_a_file_that_is_missing_names_the_command(tmp_path: Path):
    with pytest.raises(DsforgeError) as caught:
        load_recipe(write(tmp_path, RECIPE))
    assert caught.value.code == "DSF796"
    assert "dsforge tune --layers" in str(caught.value.hint)
