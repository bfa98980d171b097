"""Shapes written as a Hugging Face `config.json` and read back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.families import Experts
from dsforge.catalog.tables import models
from dsforge.layout.hf_config import config_faults, config_of, misfits
from dsforge.layout.shape import resolve_shape
from dsforge.recipe.model_sections import ShapeSection
from dsforge.records.layer_times import LayerTimes, PieceTime

BUILT = [name for name, preset in models().items() if preset.shape["arch"] in capabilities("forge").families]


@pytest.mark.parametrize("name", BUILT)
def test_a_preset_is_read_back_as_it_was_written(name: str):
    shape = resolve_shape(name, 2048)
    assert misfits(shape) == []
    back = resolve_shape("config.json", shape.max_positions, config_of(shape))
    assert back.components() == shape.components()
    # Every field that is no name.
    assert replace(back, name="", arch="", nominal_parameters=None) == replace(
        shape, name="", arch="", nominal_parameters=None
    )


EXPERTS = Experts(count=4, active=2, ffn_hidden=14336)


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("gpt2", {"kv_heads": 4}, ["kv_heads 12, not 4"]),
        ("gpt2", {"head_dim": 32}, ["head_dim 64, not 32"]),
        ("gemma2-2b", {}, ["layer_norms 2, not 4"]),
        ("falcon-7b", {}, ["kv_heads 71, not 1"]),
        ("gpt2", {"experts": EXPERTS}, ["no experts"]),
        ("llama3-8b", {"experts": replace(EXPERTS, normalised=False)}, ["normalised True, not False"]),
        ("qwen3-8b", {"experts": replace(EXPERTS, shared_ffn_hidden=9)}, ["shared_ffn_hidden 0, not 9"]),
    ],
)
def test_what_no_class_has_is_named(name: str, changes: dict[str, Any], told: list[str]):
    found = misfits(replace(resolve_shape(name, 2048), **changes))
    assert found[: len(told)] == told


def test_a_width_that_no_layer_has_and_measured_times_tell_no_models_apart():
    shape = resolve_shape("mixtral-8x7b", 2048)
    piece = PieceTime(1.0, 2.0, 0.1)
    times = LayerTimes({}, "a machine", "forge", 1, 15, piece, piece, piece)
    assert misfits(replace(shape, ffn_hidden=9, times=times)) == []
    assert shape.experts is not None
    other = replace(shape.experts, dense_layers=(0,))
    assert misfits(replace(shape, ffn_hidden=9, experts=other))[0] == "ffn_hidden 14336, not 9"


@pytest.mark.parametrize(
    ("window_layers", "told"),
    [(None, []), ((22, 23), []), ((20, 22), ["window_layers (20, 21, 22, 23), not (20, 22)"])],
)
def test_a_qwen_has_its_window_from_some_layer_on(window_layers: Any, told: list[str]):
    shape = resolve_shape("qwen2.5-0.5b", 2048)
    windowed = replace(shape, traits=replace(shape.traits, window=512, window_layers=window_layers))
    assert misfits(windowed) == told


QWEN = {
    "model_type": "qwen2",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 256,
}
YARN = {"rope_type": "yarn", "factor": 4.0}


@pytest.mark.parametrize(
    ("found", "wanted", "told"),
    [
        ({}, {"max_position_embeddings": 99, "bos_token_id": 1}, []),
        ({"vocab_size": 300}, {}, ["vocab 300, not 256"]),
        ({"rope_theta": 1e6}, {}, ["rope_theta 1000000.0, not 10000.0"]),
        ({"rope_scaling": YARN}, {}, ["rope_scaling True, not False"]),
        ({"rope_scaling": YARN}, {"rope_parameters": {**YARN, "rope_theta": 1e4}}, []),
        ({"rope_scaling": YARN}, {"rope_scaling": {**YARN, "factor": 8.0}}, ["RoPE scaled otherwise"]),
        ({"model_type": "llama"}, {}, ["qkv_bias False, not True"]),
    ],
)
def test_configs_of_different_models_differ_in_words(found, wanted, told):
    assert config_faults({**QWEN, **found}, {**QWEN, **wanted}, "config.json") == told


def test_a_trainer_like_another_has_its_rows_but_those_that_it_sets_anew():
    forge, ours = capabilities("forge"), capabilities("transformers")
    assert set(forge.honours) - set(ours.honours) == {"checkpoint.init", "train.balance_loss"}
    assert ours.honours["monitor.wandb"] == forge.honours["monitor.wandb"]
    assert ours.honours["parallel.pp"].values == (1,)
    assert "parallel.pp" not in forge.honours
    assert (forge.vocab_divisor, ours.vocab_divisor) == (128, 1)


def test_a_shape_that_no_config_can_say_is_a_misfit_not_a_fault():
    shape = resolve_shape(ShapeSection(arch="gpt", layers=4, hidden=64, heads=3, vocab=100), 16)
    assert misfits(shape) == ["no such shape (`n_embd: 64` of gpt-4x64 is not a multiple of 3 heads)"]
