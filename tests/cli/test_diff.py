"""`diff`: every difference has its consequence, and the exit code follows the weightiest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.recipes import ROOT, SMALL, write

Cli = Callable[..., Any]


def rows(outcome: Any) -> dict[str, tuple[str, Any, Any]]:
    return {row["key"]: (row["consequence"], row["a"], row["b"]) for row in outcome.json["differences"]}


PADDED = """\
version: 1
model: {arch: gpt, layers: 2, hidden: 64, heads: 8, vocab: 50257}
cluster: {nodes: 1, gpus_per_node: 8, gpu: a100-sxm-80gb}
parallel: {tp: 1}
batch: {global: 8, micro: 1, seq_len: 64}
"""
EXTERNAL = "trainer: external\nexternal: {flavour: megatron-lm, path: x}\ndata: {train: a}\n"


@pytest.mark.parametrize(("more", "weight"), [("", "execution"), (EXTERNAL, "convergence")])
def test_tp_that_pads_the_vocabulary_otherwise_is_told(cli: Cli, tmp_path: Path, more: str, weight: str):
    a, b = write(tmp_path, PADDED + more), write(tmp_path, PADDED.replace("tp: 1", "tp: 8") + more, "b.yaml")
    assert rows(cli("diff", a, b, "--json")) == {
        "parallel.tp": (weight, 1, 8),
        "(padded vocabulary)": (weight, 50304, 51200),
    }


@pytest.mark.parametrize(
    ("old", "new", "key", "consequence"),
    [
        ("layers: 4", "layers: 8", "model.layers", "convergence"),
        ("global: 32", "global: 64", "batch.global", "convergence"),
        ("seq_len: 64", "seq_len: 32", "batch.seq_len", "convergence"),
        ("lr: 3.0e-3", "lr: 1.0e-3", "optimizer.lr", "convergence"),
        ("steps: 30", "steps: 31", "train.steps", "convergence"),
        ("fp32}", "fp32, seed: 1}", "train.seed", "convergence"),
        ("fp32}", "bf16}", "train.precision", "convergence"),
        ("version: 1", "version: 1\ndata: {train: [[1.0, a]]}", "data.train", "convergence"),
        ("version: 1", "version: 1\ncheckpoint: {resume: never}", "checkpoint.resume", "convergence"),
        ("tp: 2", "tp: 1", "parallel.tp", "execution"),
        ("pp: 2", "pp: 1", "parallel.pp", "execution"),
        ("dp: 2", "dp: auto", "parallel.dp", "execution"),
        ("zero: 1", "zero: auto", "parallel.zero", "execution"),
        ("micro: 2", "micro: 1", "batch.micro", "execution"),
        ("nodes: 1", "nodes: 2", "cluster.nodes", "execution"),
        ("fp32}", "fp32, recompute: full}", "train.recompute", "execution"),
        ("version: 1", "version: 1\nlaunch: {restarts: 1}", "launch.restarts", "execution"),
        ("version: 1", "version: 1\nlaunch: {env: {A: x}}", "launch.env.A", "execution"),
        ("name: small", "name: other", "name", "cosmetic"),
        ("version: 1", "version: 1\nmonitor: {wandb: true}", "monitor.wandb", "cosmetic"),
        (
            "version: 1",
            "version: 1\nprofiles: {p: {train: {steps: 3}}}",
            "profiles.p.train.steps",
            "cosmetic",
        ),
        ("version: 1", "# hello\nversion: 1", "(text)", "cosmetic"),
    ],
)
def test_a_difference_has_its_consequence(
    cli: Cli, tmp_path: Path, old: str, new: str, key: str, consequence: str
):
    a, b = write(tmp_path), write(tmp_path, SMALL.replace(old, new), "b.yaml")
    shown = cli("diff", a, b, "--json")
    expected = {key} if key != "data.train" else {"data"}
    assert set(rows(shown)) == expected
    assert rows(shown)[expected.pop()][0] == consequence
    assert shown.json["worst"] == consequence
    weight = ["cosmetic", "execution", "convergence"].index(consequence)
    for word, least in (("any", 0), ("execution", 1), ("convergence", 2)):
        assert cli("diff", a, b, "--fail-on", word).code == int(weight >= least)


def test_nothing_differs(cli: Cli, tmp_path: Path):
    text = SMALL.replace("name: small\n", "")
    shown = cli("diff", write(tmp_path, text), write(tmp_path, text, "b.yaml"), "--json")
    assert (shown.code, shown.json["differences"], shown.json["worst"]) == (0, [], None)


def test_defaults_written_out_and_order_are_no_difference_of_value(cli: Cli, tmp_path: Path):
    a = write(tmp_path, SMALL + "launch: {env: {A: x, B: y}}\n")
    b = write(tmp_path, SMALL + "launch: {env: {B: y, A: x}, restarts: 0}\n", "b.yaml")
    shown = cli("diff", a, b)
    assert shown.out == "cosmetic     launch.env: [A, B] -> [B, A]\n"
    assert cli("diff", a, b, "--fail-on", "execution").code == 0


def test_the_weightiest_comes_first(cli: Cli, tmp_path: Path):
    b = SMALL.replace("tp: 2", "tp: 1").replace("lr: 3.0e-3", "lr: 1.0e-3").replace("small", "other")
    shown = cli("diff", write(tmp_path), write(tmp_path, b, "b.yaml"))
    assert shown.code == 1
    assert shown.out == (
        "convergence  optimizer.lr: 0.003 -> 0.001\n"
        "execution    parallel.tp: 2 -> 1\n"
        "cosmetic     name: small -> other\n"
    )


def test_a_model_by_name_against_a_shape_is_one_difference(cli: Cli, tmp_path: Path):
    head, _, tail = SMALL.partition("model: ")
    named = write(tmp_path, f"{head}model: gpt2\n{tail.partition(chr(10))[2]}", "b.yaml")
    found = rows(cli("diff", write(tmp_path), named, "--json"))
    assert set(found) == {"model"}
    assert found["model"][2] == "gpt2"


def test_a_recipe_against_its_lock(cli: Cli, tmp_path: Path):
    recipe = write(tmp_path, SMALL + "launch: {env: {B: y, A: x}}\n")
    cli("lock", recipe)
    lock = recipe.with_suffix(".lock")
    assert cli("diff", recipe, lock).code == 0
    recipe.write_text(recipe.read_text().replace("micro: 2", "micro: 1"))
    assert rows(cli("diff", lock, recipe, "--json")) == {"batch.micro": ("execution", 2, 1)}


def test_profiles_extends_and_shipped_recipes(cli: Cli, tmp_path: Path):
    write(tmp_path, SMALL + "profiles: {p: {train: {steps: 3}}}\n")
    child = write(tmp_path, "version: 1\nextends: recipe.yaml\nname: small\n", "child.yaml")
    assert cli("diff", tmp_path / "recipe.yaml", child, "--fail-on", "execution").code == 0
    smoke, gpt2 = (ROOT / "recipes" / f"{name}.yaml" for name in ("smoke", "gpt2-8gpu"))
    assert cli("diff", smoke, gpt2, "--json").json["worst"] == "convergence"
    assert cli("diff", smoke, tmp_path / "nowhere.yaml").code == 2
    assert cli("diff", smoke, tmp_path / "nowhere.lock").code == 2


def test_a_micro_batch_over_which_experts_are_balanced_changes_what_is_learnt(cli: Cli, tmp_path: Path):
    text = SMALL.replace("fp32}", "fp32, balance_loss: 0.01}")
    a, b = write(tmp_path, text), write(tmp_path, text.replace("micro: 2", "micro: 4"), "b.yaml")
    assert rows(cli("diff", a, b, "--json")) == {"batch.micro": ("convergence", 2, 4)}
