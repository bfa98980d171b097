"""Each family is one function of its weights: to the reference, our layers, and Hugging Face's class.

The classes' configurations are written by hand, as their authors publish them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

from dsforge.plan.types import Plan
from dsforge.train.hf_names import from_hugging_face, parts
from dsforge.train.hugging_face import bare_model
from tests.support.family_shapes import (
    CPU,
    LENGTH,
    SAMPLES,
    SHAPES,
    VOCAB,
    WINDOW,
    Measured,
    by_layers,
    by_reference,
    join,
    largest_difference,
    measure,
    plan_for,
    restless,
)

LOSS, GRADIENT = 2e-6, 1e-6
OF_SHAPE = {"vocab_size": VOCAB, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6}
GROUPED = {**OF_SHAPE, "intermediate_size": 80, "num_key_value_heads": 2, "head_dim": 8}
QWEN2 = {"model_type": "qwen2", **GROUPED}
NEOX = {**OF_SHAPE, "model_type": "gpt_neox", "intermediate_size": 96, "hidden_act": "gelu_fast"}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "vocab_size": VOCAB, "n_embd": 48, "n_layer": 2, "n_head": 6}
    | {"n_inner": 96, "n_positions": LENGTH + 1, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0},
    "llama": {"model_type": "llama", **GROUPED, "rms_norm_eps": 1e-5, "rope_theta": 5e5},
    "mistral": {"model_type": "mistral", **GROUPED, "rms_norm_eps": 1e-5, "sliding_window": WINDOW},
    "qwen2": QWEN2,
    "qwen2-window": QWEN2 | {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 0},
    "qwen3": {"model_type": "qwen3", **GROUPED, "head_dim": 12, "tie_word_embeddings": True},
    "gpt-neox": NEOX,
    "pythia": {**NEOX, "hidden_act": "gelu", "rotary_pct": 0.5},
    "neox-in-turn": {**NEOX, "use_parallel_residual": False, "tie_word_embeddings": True},
    "gemma": {"model_type": "gemma", **GROUPED, "head_dim": 16, "hidden_act": "gelu", "pad_token_id": None},
}
MATTERS: dict[str, dict[str, Any]] = {
    "mistral": {"window": None},
    "qwen2-window": {"window_layers": (1,)},
    "gpt-neox": {"parallel_residual": False},
    "pythia": {"rotary_fraction": 0.25},
    "neox-in-turn": {"parallel_residual": True},
    "gemma": {"scaled_embedding": False},
}
"""What a wrong model would have otherwise, with weights of the same shapes."""


def by_hugging_face(model: nn.Module, plan: Plan, weights: Mapping[str, torch.Tensor]) -> Measured:
    held = parts(plan.model).items()
    named = {part.name: part.of(weights[name]).contiguous() for name, some in held for part in some}
    model.load_state_dict(named, strict=False)
    assert set(named) == set(dict(model.named_parameters()))
    loss = model(input_ids=SAMPLES, labels=SAMPLES).loss
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return loss.item(), from_hugging_face(gradients, plan.model)


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The groups of a world of one."""
    yield join(0, tmp_path_factory.mktemp("world") / "store", 1)
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


@pytest.mark.parametrize("family", SHAPES)
def test_one_function_of_its_weights_to_all_who_build_it(groups: Any, family: str):
    from transformers import AutoConfig, AutoModelForCausalLM

    plan = plan_for(family, "transformers")
    weights = restless(plan.model)
    values = dict(CONFIGS[family])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    theirs = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    expected = by_hugging_face(theirs, plan, weights)
    own = bare_model(plan, torch.float32, CPU)
    measured = {
        "reference": (plan, by_reference(plan.model, weights)),
        "transformers": (plan, by_hugging_face(own, plan, weights)),
    }
    for trainer in ("forge", "megatron-core"):
        layered = plan_for(family, trainer)
        measured[trainer] = layered, by_layers(layered, groups, weights)
    for builder, (of, found) in measured.items():
        loss, gradient = largest_difference(found, expected, of)
        assert (loss <= LOSS, gradient <= GRADIENT) == (True, True), (builder, loss, gradient)
    if family in MATTERS:
        other, _ = by_reference(plan.model.model_copy(update=MATTERS[family]), weights)
        assert abs(other - expected[0]) > 1e-3


def test_two_shards_have_the_gradients_of_the_whole(tmp_path: Path):
    """Of every family, norms over heads among them; under megatron-core sequences are split, too."""
    torch.multiprocessing.spawn(measure, (tmp_path,), nprocs=2)
    for shard in range(2):
        told = json.loads((tmp_path / f"{shard}.json").read_text("utf-8"))
        assert len(told) == 2 * len(SHAPES)
        for which, (loss, gradient) in told.items():
            assert (loss <= LOSS, gradient <= GRADIENT) == (True, True), (which, loss, gradient)
