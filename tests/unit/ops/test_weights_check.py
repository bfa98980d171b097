"""The weights that a recipe starts from are looked at before any rank starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.layout.hf_config import config_of
from dsforge.layout.shape import resolve_shape
from dsforge.ops.weights_check import check_weights
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import load_recipe

RECIPE = """\
version: 1
model: qwen2.5-0.5b
trainer: transformers
cluster: {gpus_per_node: 2, gpu: cpu}
batch: {global: 4, seq_len: 64}
train: {precision: fp32}
checkpoint: {init: weights}
"""


def check(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(RECIPE)
    loaded = load_recipe(folder / "recipe.yaml")
    check_weights(make_plan(loaded), loaded, folder)


def refusal(folder: Path) -> DsforgeError:
    with pytest.raises(DsforgeError) as caught:
        check(folder)
    assert caught.value.place is not None
    assert caught.value.place.line == 7
    return caught.value


def test_weights_must_be_there_and_be_the_models(tmp_path: Path):
    assert refusal(tmp_path).code == "DSF049"
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "pytorch_model.bin").write_bytes(b"")
    assert (refusal(tmp_path).code, refusal(tmp_path).exit_code) == ("DSF049", 3)
    (weights / "model.safetensors").write_bytes(b"")
    assert refusal(tmp_path).code == "DSF032"
    other = config_of(resolve_shape("qwen2.5-1.5b", 64))
    (weights / "config.json").write_text(json.dumps(other))
    wrong = refusal(tmp_path)
    assert (wrong.code, wrong.exit_code) == ("DSF059", 1)
    assert "layers 28, not 24" in wrong.message
    assert "hidden 1536, not 896" in wrong.message
    (weights / "config.json").write_text(json.dumps(config_of(resolve_shape("qwen2.5-0.5b", 64))))
    check(tmp_path)
