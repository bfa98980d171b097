"""How a large layout is made to fit a small machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsforge.ops.shrink import shrink
from dsforge.ops.smoke import shrunk_recipe
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import load_recipe
from tests.support.recipes import ROOT


@pytest.mark.parametrize(
    ("max_ranks", "degrees"),
    # 8 x 8 x 16: DP to 2, then the larger of TP and PP is halved until it fits; then DP goes.
    [(128, (8, 8, 2)), (64, (4, 8, 2)), (32, (4, 4, 2)), (16, (2, 4, 2)), (8, (2, 2, 2)), (4, (2, 2, 1))],
)
def test_degrees_are_halved_the_larger_first(max_ranks: int, degrees: tuple[int, int, int]):
    recipe = load_recipe(ROOT / "recipes" / "gpt3-175b-1024a100.yaml")
    data = shrink(recipe.recipe, make_plan(recipe), max_ranks).data["parallel"]
    assert (data["tp"], data["pp"], data["dp"]) == degrees


def test_a_config_of_hugging_face_becomes_a_tiny_shape_of_its_family(tmp_path: Path):
    config = {
        "model_type": "qwen2",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 9000,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
        "rope_theta": 2e4,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "recipe.yaml").write_text(
        "{version: 1, model: config.json, trainer: transformers, cluster: {gpus_per_node: 4, gpu: cpu}, "
        "batch: {global: 8, seq_len: 32}, checkpoint: {init: weights}, data: {train: mine}}"
    )
    loaded = load_recipe(tmp_path / "recipe.yaml")
    small = shrink(loaded.recipe, make_plan(loaded), 2)
    changes = {change.key: (change.recipe, change.used) for change in small.changes}
    assert changes["model.rope_scaling"] == (True, None)
    assert changes["checkpoint.init"] == ("weights", None)
    assert changes["data"] == ("the recipe's", "the built-in corpus")
    assert changes["model.vocab"] == (9000, 257)
    plan = make_plan(shrunk_recipe(loaded, small))
    assert plan.trainer == "transformers"
    assert plan.model.hf_config is not None
    assert plan.model.hf_config["model_type"] == "qwen2"
    assert (plan.model.qkv_bias, plan.model.padded_vocab, plan.model.rope_theta) == (True, 257, 2e4)
    assert plan.checkpoint.init is None


@pytest.mark.parametrize(
    ("model", "seq_len", "said", "told"),
    [
        # As large a share of 64 tokens as 4096 are of 8192.
        ("mistral-7b-v0.1", 8192, {"arch": "llama", "window": 32}, {"model.window": (4096, 32)}),
        ("mistral-7b-v0.1", 4096, {"arch": "llama", "window": None}, {"model.window": (4096, None)}),
        ("pythia-1.4b", 2048, {"arch": "gpt-neox", "activation": "gelu-erf", "ffn_hidden": 256}, {}),
        (
            "{arch: gpt-neox, layers: 4, hidden: 4096, heads: 32, vocab: 9000, rotary_fraction: 0.0625}",
            2048,
            {"arch": "gpt-neox", "rotary_fraction": 0.125},
            {"model.rotary_fraction": (0.0625, 0.125)},
        ),
    ],
)
def test_what_a_family_has_of_its_own_stays(tmp_path: Path, model, seq_len, said, told):
    (tmp_path / "recipe.yaml").write_text(
        f"{{version: 1, model: {model}, cluster: {{gpus_per_node: 2, gpu: cpu}}, "
        f"batch: {{global: 8, seq_len: {seq_len}}}}}"
    )
    loaded = load_recipe(tmp_path / "recipe.yaml")
    small = shrink(loaded.recipe, make_plan(loaded), 2)
    assert {key: small.data["model"].get(key) for key in said} == said
    changes = {change.key: (change.recipe, change.used) for change in small.changes}
    assert {key: changes[key] for key in told} == told
    assert ("model.window" in changes, "model.rotary_fraction" in changes) == (
        "model.window" in told,
        "model.rotary_fraction" in told,
    )
    make_plan(shrunk_recipe(loaded, small))


def test_each_change_is_told():
    recipe = load_recipe(ROOT / "recipes" / "gpt3-175b-1024a100.yaml")
    changes = {c.key: (c.recipe, c.used) for c in shrink(recipe.recipe, make_plan(recipe), 16).changes}
    assert changes["parallel.dp"] == (16, 2)
    assert changes["model.layers"] == (96, 8)  # two a stage
    assert changes["model.vocab"][0] == 50_257
    assert changes["cluster.nodes"] == (128, 1)
    assert changes["cluster.gpu"] == ("a100-sxm-80gb", "cpu")
    assert all(change.why for change in shrink(recipe.recipe, make_plan(recipe), 16).changes)
