"""Each family is one function of its weights: to the reference, our layers, and Hugging Face's class.

The classes' configurations are written by hand, as their authors publish them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dsforge.plan.types import Plan
from dsforge.train import reference, slicing
from dsforge.train.hf_names import from_hugging_face, parts
from dsforge.train.hugging_face import bare_model
from dsforge.train.parameters import model_parameters
from tests.support.recipes import plan_of

CPU = torch.device("cpu")
LENGTH, VOCAB, WINDOW = 24, 71, 7
LOSS, GRADIENT = 2e-6, 1e-6
LLAMA = {"hidden": 48, "heads": 6, "kv_heads": 2, "head_dim": 8, "ffn_hidden": 80}
GPT = {"hidden": 48, "heads": 6, "ffn_hidden": 96, "head_dim": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"arch": "gpt", **GPT, "max_positions": LENGTH + 1},
    "llama": {"arch": "llama", **LLAMA, "rope_theta": 5e5},
    "mistral": {"arch": "llama", **LLAMA, "window": WINDOW},
    "qwen2": {"arch": "qwen2", **LLAMA},
    "qwen2-window": {"arch": "qwen2", **LLAMA, "window": WINDOW},
    "qwen3": {"arch": "qwen3", **LLAMA, "head_dim": 12, "tied": True},
    "gpt-neox": {"arch": "gpt-neox", **GPT, "head_dim": 8, "rotary_fraction": 0.25},
    "pythia": {"arch": "gpt-neox", **GPT, "rotary_fraction": 0.5, "activation": "gelu-erf"},
    "neox-in-turn": {"arch": "gpt-neox", **GPT, "parallel_residual": False, "tied": True},
    "gemma": {"arch": "gemma", **LLAMA, "head_dim": 16, "kv_heads": 1},
}
OF_SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "intermediate_size": 80,
}
GROUPED = {**OF_SHAPE, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": LENGTH}
NEOX = {**OF_SHAPE, "model_type": "gpt_neox", "intermediate_size": 96, "hidden_act": "gelu_fast"}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "vocab_size": VOCAB, "n_embd": 48, "n_layer": 2, "n_head": 6}
    | {"n_inner": 96, "n_positions": LENGTH + 1, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0},
    "llama": {"model_type": "llama", **GROUPED, "rms_norm_eps": 1e-5, "rope_theta": 5e5},
    "mistral": {"model_type": "mistral", **GROUPED, "rms_norm_eps": 1e-5, "sliding_window": WINDOW},
    "qwen2": {"model_type": "qwen2", **GROUPED},
    "qwen2-window": {"model_type": "qwen2", **GROUPED, "use_sliding_window": True}
    | {"sliding_window": WINDOW, "max_window_layers": 0},
    "qwen3": {"model_type": "qwen3", **GROUPED, "head_dim": 12, "tie_word_embeddings": True},
    "gpt-neox": NEOX,
    "pythia": {**NEOX, "hidden_act": "gelu", "rotary_pct": 0.5},
    "neox-in-turn": {**NEOX, "use_parallel_residual": False, "tie_word_embeddings": True},
    "gemma": {"model_type": "gemma", **GROUPED, "head_dim": 16, "num_key_value_heads": 1}
    | {"hidden_act": "gelu", "pad_token_id": None},
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

Measured = tuple[float, Mapping[str, torch.Tensor]]


def plan_for(family: str, trainer: str, **shape: Any) -> Plan:
    one = {"tp": 1, "pp": 1, "dp": 1, "zero": 0}
    model = {"layers": 2, "vocab": VOCAB, **SHAPES[family], **shape}
    return plan_of(
        {"trainer": trainer, "cluster": {"gpus_per_node": 1}, "parallel": one, "batch": {"seq_len": LENGTH}},
        {"model": {"kv_heads": None, **model}},
    )


def restless(plan: Plan) -> dict[str, torch.Tensor]:
    """Return weights of which no bias is 0 and no norm scales by 1."""
    generator = torch.Generator().manual_seed(3)
    return {
        name: weight + 0.1 * torch.empty_like(weight).normal_(generator=generator)
        for name, weight in reference.first_weights(plan.model, 1).items()
    }


SAMPLES = torch.randint(VOCAB, (3, LENGTH + 1), generator=torch.Generator().manual_seed(5))
TOKENS, LABELS, IDS = SAMPLES[:, :-1], SAMPLES[:, 1:], torch.arange(3)


def by_reference(model: Any, weights: Mapping[str, torch.Tensor]) -> Measured:
    own = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    logits = reference.logits(model, own, TOKENS)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), LABELS.flatten())
    loss.backward()
    return loss.item(), {name: weight.grad for name, weight in own.items()}


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
    from dsforge.train import cpu_support, megatron_core
    from dsforge.train.deepspeed_library import load

    cpu_support.choose_device("cpu", 0)
    load(CPU)
    megatron_core.import_libraries(CPU)
    store: Path = tmp_path_factory.mktemp("world") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield megatron_core.make_groups(plan_for("llama", "forge").layout)
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def filled(modules: list[nn.Module], plan: Plan, weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    from dsforge.train.named import global_parameters

    specs = {spec.name: spec for spec in model_parameters(plan.model)}
    found = {name: one for module in modules for name, one in global_parameters(module, specs).items()}
    assert set(found) == set(weights)
    with torch.no_grad():
        for name, parameter in found.items():
            parameter.copy_(slicing.pad_rows(weights[name], parameter.shape[0]))
    return found


def gradients_of(parameters: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Any:
    return {name: one.grad[: weights[name].shape[0]] for name, one in parameters.items()}


def by_forge(groups: Any, plan: Plan, weights: Mapping[str, torch.Tensor]) -> Measured:
    from dsforge.train.loss import token_loss
    from dsforge.train.model import build_module

    module = build_module(plan, groups, token_loss(VOCAB, plan.model.padded_vocab, 1, 0))
    parameters = filled([module], plan, weights)
    loss = module((TOKENS, IDS), LABELS)
    loss.backward()
    return loss.item(), gradients_of(parameters, weights)


def by_megatron_core(groups: Any, plan: Plan, weights: Mapping[str, torch.Tensor]) -> Measured:
    from dsforge.train import core_on_cpu
    from dsforge.train.core_model import make_chunks
    from dsforge.train.loss import token_loss

    core_on_cpu.prepare(CPU)
    chunks = make_chunks(plan, groups, plan.layout.stages[0])
    parameters = filled(list(chunks), plan, weights)
    loss = token_loss(VOCAB, plan.model.padded_vocab, 1, 0)(chunks[0](TOKENS, IDS), LABELS)
    loss.backward()
    return loss.item(), gradients_of(parameters, weights)


@pytest.mark.parametrize("family", SHAPES)
def test_one_function_of_its_weights_to_all_who_build_it(groups: Any, family: str):
    from transformers import AutoConfig, AutoModelForCausalLM

    plan = plan_for(family, "transformers")
    weights = restless(plan)
    values = dict(CONFIGS[family])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    theirs = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    expected, gradients = by_hugging_face(theirs, plan, weights)
    measured = {
        "reference": by_reference(plan.model, weights),
        "transformers": by_hugging_face(bare_model(plan, torch.float32, CPU), plan, weights),
        "forge": by_forge(groups, plan_for(family, "forge"), weights),
        "megatron-core": by_megatron_core(groups, plan_for(family, "megatron-core"), weights),
    }
    for builder, (loss, own) in measured.items():
        assert loss == pytest.approx(expected, abs=LOSS), builder
        assert set(own) == set(gradients)
        for name, gradient in gradients.items():
            largest = (own[name] - gradient).abs().max().item()
            assert largest <= GRADIENT, f"{name} of {builder}: {largest}"
    if family in MATTERS:
        other = by_reference(plan.model.model_copy(update=MATTERS[family]), weights)[0]
        assert abs(other - expected) > 1e-3
