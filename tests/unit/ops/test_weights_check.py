"""The weights that a recipe starts from are looked at before any rank starts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.layout.hf_config import config_of
from dsforge.layout.hf_tensors import tensors_of
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
OURS = config_of(resolve_shape("qwen2.5-0.5b", 64))


def write_header(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> None:
    """Write a file of these tensors that holds no byte of theirs on the disk."""
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + end)


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
    assert (refusal(tmp_path).code, refusal(tmp_path).exit_code) == ("DSF049", 3)
    write_header(weights / "model.safetensors", tensors_of(OURS).shapes)
    assert refusal(tmp_path).code == "DSF032"
    other = config_of(resolve_shape("qwen2.5-1.5b", 64))
    (weights / "config.json").write_text(json.dumps(other))
    wrong = refusal(tmp_path)
    assert (wrong.code, wrong.exit_code) == ("DSF059", 1)
    assert "layers 28, not 24" in wrong.message
    assert "hidden 1536, not 896" in wrong.message
    (weights / "config.json").write_text(json.dumps(OURS))
    check(tmp_path)


NORM = "model.norm.weight"
SHAPES = tensors_of(OURS).shapes
WITHOUT = {name: shape for name, shape in SHAPES.items() if name != NORM}


@pytest.mark.parametrize(
    ("shapes", "dtype", "cut", "index", "code", "told"),
    [
        (WITHOUT, "BF16", 0, None, "DSF059", f"{NORM} is missing"),
        ({**SHAPES, "x": (1,)}, "BF16", 0, None, "DSF059", "x is no parameter of the model"),
        ({**SHAPES, NORM: (3,)}, "BF16", 0, None, "DSF059", f"{NORM} has shape [3], not [896]"),
        (SHAPES, "I16", 0, None, "DSF059", "is of type I16"),
        (SHAPES, "BF16", 1, None, "DSF049", "truncated: model.norm.weight ends 1 bytes behind the file"),
        (SHAPES, "BF16", 0, '{"weight_map": {"x": "model.safetensors"}}', "DSF059", "x is not in model"),
        (
            SHAPES,
            "BF16",
            0,
            '{"weight_map": {"x": "y.safetensors"}}',
            "DSF049",
            "No such file",
        ),
        (SHAPES, "BF16", 0, "[" * 200_000, "DSF049", "nested too deeply"),
        (SHAPES, "BF16", 0, '{"weight_map": [1, "a"]}', "DSF049", "`weight_map` is not an object"),
    ],
)
def test_headers_tell_what_the_ranks_would_refuse(tmp_path: Path, shapes, dtype, cut, index, code, told):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps(OURS))
    path = weights / "model.safetensors"
    write_header(path, shapes, dtype)
    os.truncate(path, path.stat().st_size - cut)
    if index is not None:
        (weights / "model.safetensors.index.json").write_text(index)
    refused = refusal(tmp_path)
    assert refused.code == code
    assert told in refused.message
