"""A recipe lies over the files it extends; places, paths and faults stay with the file they come from."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsforge.base.errors import DsforgeError, Place
from dsforge.cli.complete import profiles
from dsforge.recipe.extends import MAX_FILES
from dsforge.recipe.load import load_recipe
from dsforge.recipe.model_file import read_model_config
from dsforge.recipe.origins import Layer
from tests.support.recipes import SMALL, write
from tests.unit.recipe.test_load import fault_of

CHILD = "version: 1\nextends: recipe.yaml\nbatch: {micro: 1}\n"


def test_a_recipe_lies_over_the_one_it_extends(tmp_path: Path):
    write(tmp_path)
    loaded = load_recipe(write(tmp_path, CHILD, "child.yaml"))
    recipe = loaded.recipe
    assert (recipe.batch.global_size, recipe.batch.micro, recipe.batch.seq_len) == (32, 1, 64)
    assert (recipe.name, recipe.extends) == ("child", None)
    assert str(loaded.place("batch.micro")) == f"{tmp_path / 'child.yaml'}:3:9"
    assert str(loaded.place("batch.global")) == f"{tmp_path / 'recipe.yaml'}:6:9"
    assert loaded.origin("batch.micro").layer is Layer.RECIPE
    assert loaded.origin("batch.global").layer is Layer.EXTENDS
    assert loaded.origin("train.recompute").layer is Layer.DEFAULT
    assert loaded.origin("name").layer is Layer.DEFAULT


def test_a_chain_of_three_and_its_profiles(tmp_path: Path):
    write(tmp_path, SMALL + "profiles: {p: {train: {steps: 5}}, q: {batch: {micro: 4}}}\n")
    write(tmp_path, CHILD + "profiles: {p: {train: {seed: 7}}}\n", "child.yaml")
    path = write(tmp_path, "version: 1\nextends: child.yaml\ntrain: {steps: 9}\n", "grandchild.yaml")
    plain = load_recipe(path).recipe
    assert (plain.train.steps, plain.batch.micro, plain.train.precision) == (9, 1, "fp32")
    chosen = load_recipe(path, profile="p")
    assert (chosen.recipe.train.steps, chosen.recipe.train.seed) == (5, 7)
    assert chosen.origin("train.steps").name == "p"
    assert str(chosen.place("train.seed")).startswith(f"{tmp_path / 'child.yaml'}:4:")
    assert load_recipe(path, profile="q").recipe.batch.micro == 4


def test_a_fault_of_an_extended_file_points_into_it(tmp_path: Path):
    base = write(tmp_path, SMALL.replace("tp: 2", "tp: 0"))
    fault = fault_of(write(tmp_path, CHILD, "child.yaml"))
    assert (fault.message, str(fault.place)) == ("`parallel.tp` is `0`", f"{base}:5:12")
    mended = write(tmp_path, CHILD + "parallel: {tp: 1}\n", "child.yaml")
    assert load_recipe(mended).recipe.parallel.tp == 1


def test_a_replaced_value_leaves_no_place_behind(tmp_path: Path):
    write(tmp_path)
    path = write(tmp_path, CHILD + "model: gpt2\n", "child.yaml")
    loaded = load_recipe(path)
    assert loaded.recipe.model == "gpt2"
    assert str(loaded.place("model.layers")) == f"{path}:4:1"


@pytest.mark.parametrize(
    ("folder", "hostfile", "data", "absolute"),
    [("jobs", "../base/hosts", "../base/corpus/a", "/data/b"), ("base", "hosts", "corpus/a", "/data/b")],
)
def test_paths_start_from_the_file_they_are_written_in(
    tmp_path: Path, folder: str, hostfile: str, data: str, absolute: str
):
    for name in ("base", "jobs"):
        (tmp_path / name).mkdir()
    text = SMALL.replace("gpu: cpu}", "gpu: cpu, hostfile: hosts}") + (
        "data: {train: [[1.0, corpus/a], [0.5, /data/b]], tokenizer: corpus/t.json}\n"
        "checkpoint: {resume: auto}\nprofiles: {p: {checkpoint: {dir: ckpt, resume: old/step-1}}}\n"
    )
    write(tmp_path / "base", text)
    child = f"version: 1\nextends: {'../base/' if folder == 'jobs' else ''}recipe.yaml\n"
    path = write(tmp_path / folder, child, "child.yaml")
    recipe = load_recipe(path).recipe
    assert recipe.cluster.hostfile == hostfile
    assert recipe.data is not None
    assert recipe.data.train == ((1.0, data), (0.5, absolute))
    assert recipe.checkpoint.resume == "auto"
    chosen = load_recipe(path, profile="p").recipe.checkpoint
    assert chosen.dir == hostfile.replace("hosts", "ckpt")
    assert chosen.resume == hostfile.replace("hosts", "old/step-1")


def test_circles_are_named(tmp_path: Path):
    write(tmp_path, "version: 1\nextends: b.yaml\n", "a.yaml")
    b = write(tmp_path, "version: 1\n\nextends: ./a.yaml\n", "b.yaml")
    fault = fault_of(tmp_path / "a.yaml")
    assert (fault.code, fault.message) == ("DSF004", "extends itself: a.yaml -> b.yaml -> a.yaml")
    assert str(fault.place) == f"{b}:3:1"
    own = fault_of(write(tmp_path, "version: 1\nextends: own.yaml\n", "own.yaml"))
    assert own.message == "extends itself: own.yaml -> own.yaml"


def test_a_chain_has_an_end(tmp_path: Path):
    names = [f"r{n}.yaml" for n in range(MAX_FILES + 1)]
    write(tmp_path, SMALL, names[-1])
    for name, parent in itertools.pairwise(names):
        write(tmp_path, f"version: 1\nextends: {parent}\n", name)
    assert load_recipe(tmp_path / names[1]).recipe.batch.micro == 2
    fault = fault_of(tmp_path / names[0])
    assert fault.message == f"the chain of `extends` is longer than {MAX_FILES} files"
    assert str(fault.place) == f"{tmp_path / names[-2]}:2:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 1\nextends: nowhere.yaml\n", "cannot extend `nowhere.yaml`: no such file"),
        ("version: 1\nextends: .\n", "cannot extend `.`: cannot be read: Is a directory"),
        ("version: 1\nextends: 3\n", "`extends` is not the path of a recipe"),
        ("version: 1\nextends: [a.yaml]\n", "`extends` is not the path of a recipe"),
        ('version: 1\nextends: "a\\0b"\n', "`extends` is not the path of a recipe"),
    ],
)
def test_what_cannot_be_extended(tmp_path: Path, text: str, message: str):
    path = write(tmp_path, text, "child.yaml")
    fault = fault_of(path)
    assert (fault.code, fault.message, str(fault.place)) == ("DSF004", message, f"{path}:2:1")


def test_each_file_of_a_chain_has_its_version(tmp_path: Path):
    base = write(tmp_path, SMALL.replace("version: 1\n", ""))
    child = write(tmp_path, CHILD, "child.yaml")
    fault = fault_of(child)
    assert (fault.message, str(fault.place)) == ("required key `version` is missing", f"{base}:1:1")
    write(tmp_path, SMALL.replace("version: 1", "version: 9"))
    assert (fault_of(child).code, str(fault_of(child).place)) == ("DSF006", f"{base}:1:1")


def test_extends_stands_in_the_file_alone(tmp_path: Path):
    path = write(tmp_path, SMALL + "profiles: {p: {extends: x.yaml}}\n")
    assert fault_of(path).message == "a profile cannot extend a file"
    assert fault_of(write(tmp_path), "extends=x.yaml").code == "DSF021"
    assert load_recipe(write(tmp_path, SMALL + "extends: null\n")).recipe.name == "small"


def test_a_models_file_is_a_path_too(tmp_path: Path):
    (tmp_path / "base").mkdir()
    (tmp_path / "jobs").mkdir()
    (tmp_path / "base" / "config.json").write_text('{"model_type": "gpt2"}')
    head, _, tail = SMALL.partition("model: ")
    write(tmp_path / "base", f"{head}model: config.json\n{tail.partition(chr(10))[2]}")
    child = write(tmp_path / "jobs", "version: 1\nextends: ../base/recipe.yaml\n", "child.yaml")
    loaded = load_recipe(child)
    assert loaded.recipe.model == "../base/config.json"
    assert loaded.model_config == {"model_type": "gpt2"}


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_a_recipe_names_is_never_waited_for(tmp_path: Path, kind: str):
    base = tmp_path / "base.yaml"
    if kind == "pipe":
        os.mkfifo(base)
    else:
        base.symlink_to("/dev/zero")
    child = write(tmp_path, "version: 1\nextends: base.yaml\n", "child.yaml")
    fault = fault_of(child)
    assert (fault.code, fault.message) == (
        "DSF004",
        "cannot extend `base.yaml`: cannot be read: not a regular file",
    )
    (tmp_path / "config.json").symlink_to(base)
    with pytest.raises(DsforgeError, match=r"config\.json cannot be read: not a regular file"):
        read_model_config(tmp_path / "config.json", Place())
    context = SimpleNamespace(params={"recipe": base}, args=[])
    assert profiles(context) == []


def test_a_recipe_named_to_be_read_now_may_be_a_pipe(tmp_path: Path):
    pipe = tmp_path / "recipe.yaml"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(SMALL,))
    writer.start()
    assert load_recipe(pipe).recipe.batch.global_size == 32
    writer.join()
