"""Hugging Face's models recompute what a recipe says; loss and gradients stay the same to the bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dsforge.plan.types import Train
from dsforge.train.hf_recompute import attention_name, blocks, recompute_blocks

LAYERS = 4
SHAPE = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS}
SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}
SHAPE |= {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
WINDOWS = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": LAYERS, "n_head": 4, "n_positions": 16, "vocab_size": 61}
    | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "llama": SHAPE,
    "qwen2": SHAPE | WINDOWS,
    "qwen3": SHAPE,
    "mistral": SHAPE | {"sliding_window": None},
    "mixtral": SHAPE | {"num_local_experts": 2},
    "gpt_neox": SHAPE,
}


def told(kind: str, plan: Any, recompute: str, every: int) -> dict[str, Any]:
    """Return loss, gradients, and how often layers and attentions ran, and how many bytes were kept."""
    from transformers import AutoConfig, AutoModelForCausalLM

    train: Train = plan.train.model_copy(update={"recompute": recompute, "recompute_every": every})
    config = AutoConfig.for_model(kind, **MODELS[kind])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention_name(train)).train()
    recompute_blocks(model, train)
    counts = {"layers": 0, "attentions": 0, "kept": 0}
    for layer in blocks(model):
        layer.register_forward_pre_hook(lambda *_call: counts.update(layers=counts["layers"] + 1))
    attend = torch.nn.functional.scaled_dot_product_attention

    def counted(*inputs: Any, **options: Any) -> torch.Tensor:
        counts["attentions"] += 1
        return attend(*inputs, **options)

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        counts["kept"] += tensor.numel()
        return tensor

    tokens = torch.arange(2 * 17).reshape(2, 17) % 61
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
            kept = counts["kept"]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        ran = (counts["layers"], counts["attentions"])
        with torch.no_grad():
            model(input_ids=tokens[:, :-1], use_cache=False)
    assert (counts["layers"], counts["attentions"]) == (ran[0] + LAYERS, ran[1] + LAYERS)
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"loss": loss.item(), "gradients": gradients, "ran": ran, "kept": kept}


@pytest.mark.parametrize("kind", MODELS)
def test_recomputation_happens_and_changes_nothing(make_plan, kind):
    plan = make_plan()
    none = told(kind, plan, "none", 1)
    assert none["ran"] == (LAYERS, LAYERS)
    kept = [none["kept"]]
    for recompute, every in (("selective", 1), ("full", 1), ("full", 3)):
        mode = told(kind, plan, recompute, every)
        assert mode["loss"] == none["loss"]
        assert mode["gradients"].keys() == none["gradients"].keys()
        for name, gradient in mode["gradients"].items():
            assert torch.equal(gradient, none["gradients"][name]), name
        assert mode["ran"] == ((LAYERS if recompute == "selective" else 2 * LAYERS), 2 * LAYERS)
        kept.append(mode["kept"])
    assert kept[0] > kept[1] > kept[2] > kept[3]
    # Four blocks, or two: of three layers and one, and of two each where two of them attend in a window.
    # The input of a block is 2 samples of 16 tokens, 32 wide.
    assert kept[2] - kept[3] == 2 * (2 * 16 * 32)
