"""Profiles and `key=value` arguments lie over the file, and faults point to where they came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.recipe.job_sections import SlurmSection
from dsforge.recipe.load import load_recipe
from tests.support.recipes import SMALL, write
from tests.unit.recipe.test_load import fault_of

PROFILES = """\
profiles:
  short: {train: {steps: 5}}
  other:
    model: gpt2
    optimizer:
      lr: 1.0e-4
"""


def test_a_profile_merges_sections_and_replaces_values(tmp_path: Path):
    path = write(tmp_path, SMALL + PROFILES)
    plain, short = load_recipe(path).recipe, load_recipe(path, profile="short").recipe
    assert (plain.train.steps, plain.train.precision) == (30, "fp32")
    assert (short.train.steps, short.train.precision) == (5, "fp32")
    other = load_recipe(path, profile="other").recipe
    assert other.model == "gpt2"
    assert (other.optimizer.lr, other.optimizer.warmup_steps) == (1e-4, 3)


def test_arguments_win_over_the_profile(tmp_path: Path):
    path = write(tmp_path, SMALL + PROFILES)
    assert load_recipe(path, ["train.steps=7"], "short").recipe.train.steps == 7


def test_a_fault_in_an_unselected_profile_is_told(tmp_path: Path):
    path = write(tmp_path, SMALL + PROFILES.replace("lr: 1.0e-4", "lr: -1"))
    for profile in (None, "short", "other"):
        fault = fault_of(path, profile=profile)
        assert fault.message == "`optimizer.lr` is `-1`"
        assert fault.place is not None
        assert (fault.place.line, fault.place.column) == (14, 7)


def test_unknown_profiles_and_profiles_in_profiles(tmp_path: Path):
    path = write(tmp_path, SMALL + PROFILES)
    fault = fault_of(path, profile="long")
    assert (fault.code, fault.hint) == ("DSF020", "profiles of this recipe: other, short")
    assert fault.place is not None
    assert fault.place.line == 9
    assert fault_of(write(tmp_path), profile="x").hint == "profiles of this recipe: none"
    nested = fault_of(write(tmp_path, SMALL + "profiles: {a: {profiles: {}}}\n"))
    assert (nested.code, nested.message) == ("DSF020", "a profile cannot hold profiles")
    assert fault_of(write(tmp_path, SMALL + "profiles: {a: 3}\n")).code == "DSF010"


@pytest.mark.parametrize(
    ("argument", "section", "key", "value"),
    [
        ("batch.global=64", "batch", "global_size", 64),
        ("train.tokens=4M tokens", "train", "tokens", 4_000_000),
        ("launch.env={A: x, B: '1'}", "launch", "env", {"A": "x", "B": "1"}),
        ("launch.env.A=a=b", "launch", "env", {"A": "a=b"}),
        ("offload.path=null", "offload", "path", None),
        ("optimizer.betas=[0.8, 0.9]", "optimizer", "betas", (0.8, 0.9)),
        ("monitor.wandb=true", "monitor", "wandb", True),
        ("parallel.tp=null", "parallel", "tp", 1),
        ("launch.slurm.time=24:00:00", "launch", "slurm", SlurmSection(time=86_400.0)),
        ("launch.slurm.time=1-12", "launch", "slurm", SlurmSection(time=129_600.0)),
        ("launch.slurm.time=90:30", "launch", "slurm", SlurmSection(time=5430.0)),
    ],
)
def test_arguments_are_yaml(tmp_path: Path, argument: str, section: str, key: str, value: object):
    recipe = load_recipe(write(tmp_path), [argument]).recipe
    assert getattr(getattr(recipe, section), key) == value


@pytest.mark.parametrize(
    ("argument", "code", "hint"),
    [
        ("batch.micro", "DSF021", "for example batch.micro=4, without spaces around the sign"),
        ("=4", "DSF021", "for example batch.micro=4, without spaces around the sign"),
        ("a..b=1", "DSF021", "for example batch.micro=4, without spaces around the sign"),
        ("profiles.a.train.steps=1", "DSF021", "--profile NAME"),
        ("model.layers.x=3", "DSF021", "set model.layers itself"),
        ("batch.micro=[", "DSF002", "correct the YAML syntax"),
        ("name=!!python/name:os.system x", "DSF002", "write a plain value"),
        ("batch.mikro=2", "DSF011", "did you mean `batch.micro`?"),
        ("batch.micro=", "DSF010", "it should be a valid integer"),
        ("batch=3", "DSF010", "write `batch:` and its keys below it: global, micro, seq_len"),
        ("paralell.tp=2", "DSF011", "did you mean `parallel`?"),
        ("paralell.tp=null", "DSF011", "did you mean `parallel`?"),
        ("cluster.nodes=0", "DSF010", "it must be at least 1"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path: Path, argument: str, code: str, hint: str):
    fault = fault_of(write(tmp_path), argument)
    assert (fault.code, fault.hint, fault.exit_code) == (code, hint, 2)
    assert argument in f"{fault.message} {fault.place}"


def test_null_takes_a_key_or_a_section_out(tmp_path: Path):
    recipe = write(tmp_path, SMALL + "launch: {slurm: {partition: gpu}}\n")
    loaded = load_recipe(recipe, ["launch.slurm=null", "name=null", "data.valid=null", "train.steps=null"])
    assert loaded.recipe.launch.slurm == SlurmSection()
    assert (loaded.recipe.name, loaded.recipe.data, loaded.recipe.train.steps) == ("recipe", None, None)
    assert loaded.origin("train.steps").layer == "default"
    fault = fault_of(recipe, "model=null")
    assert (fault.code, fault.message) == ("DSF010", "required key `model` is missing")


def test_a_misspelt_section_stands_at_its_argument(tmp_path: Path):
    fault = fault_of(write(tmp_path), "batch.micro=2", "paralell.tp=2")
    assert str(fault.place) == "argument `paralell.tp=2`"
