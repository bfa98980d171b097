"""The transformers trainer's model: Hugging Face's classes with our first weights, or weights from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from dsforge.base.errors import DsforgeError
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe
from dsforge.train import hf_weights, reference
from dsforge.train.hf_names import from_hugging_face, parts, to_hugging_face
from dsforge.train.hugging_face import WithLoss, make_model
from tests.support.recipes import SMALL, plan_of, write

SHAPES: dict[str, dict[str, Any]] = {
    "gpt": {"arch": "gpt", "heads": 4, "kv_heads": 4, "ffn_hidden": 96},
    "gpt-untied": {"arch": "gpt", "heads": 4, "kv_heads": 4, "tied": False},
    "llama": {"arch": "llama", "heads": 6, "kv_heads": 2, "hidden": 72, "rope_theta": 5e5, "norm_eps": 1e-3},
    "llama-tied-wide-heads": {"arch": "llama", "tied": True, "head_dim": 20},
    "qwen2": {"arch": "qwen2"},
    "qwen3": {"arch": "qwen3", "tied": True, "head_dim": 24},
}


def plan_for(shape: dict[str, Any], **changes: Any) -> Plan:
    one = {"tp": 1, "pp": 1, "dp": 1, "zero": 0}
    cluster = {"gpus_per_node": 1}
    small = {"layers": 2, "vocab": 71}
    return plan_of(
        {"trainer": "transformers", "model": {**small, **shape}, "parallel": one, "cluster": cluster}, changes
    )


def filled(plan: Plan) -> Any:
    model = make_model(plan, torch.device("cpu"), {})
    hf_weights.draw(dict(model.named_parameters()), plan, rank=0)
    return model


def restless(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights of which no bias is 0 and no norm is 1, so that none can be left out unnoticed."""
    generator = torch.Generator().manual_seed(3)
    return {
        name: weight + 0.1 * torch.empty_like(weight).normal_(generator=generator)
        for name, weight in weights.items()
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_the_drawn_model_gives_the_logits_of_the_reference(shape: str):
    plan = plan_for(SHAPES[shape])
    tokens = torch.arange(2 * 40).view(2, 40) * 7 % 71
    theirs = filled(plan)(input_ids=tokens, use_cache=False).logits
    ours = reference.logits(plan.model, reference.first_weights(plan.model, plan.train.seed), tokens)
    assert plan.model.padded_vocab == 71
    assert theirs.shape == ours.shape
    assert (theirs - ours).abs().max().item() <= 1e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_any_weights_mean_the_same_under_either_name(shape: str):
    plan = plan_for(SHAPES[shape])
    weights = restless(reference.first_weights(plan.model, 1))
    model = make_model(plan, torch.device("cpu"), {})
    named = to_hugging_face(weights, plan.model)
    model.load_state_dict(named, strict=False)
    assert set(named) == set(dict(model.named_parameters()))
    tokens = torch.arange(2 * 40).view(2, 40) * 7 % 71
    difference = model(input_ids=tokens).logits - reference.logits(plan.model, weights, tokens)
    assert difference.abs().max().item() <= 1e-4
    back = from_hugging_face(named, plan.model)
    assert set(back) == set(weights)
    assert all(torch.equal(back[name], weights[name]) for name in weights)


def test_the_parts_of_a_grouped_attention_weight_by_hand():
    """Two key-value heads for four query heads, width 2: rows q q k v, q q k v, two rows each."""
    plan = plan_for({"arch": "llama", "hidden": 8, "heads": 4, "kv_heads": 2, "ffn_hidden": 3})
    held = parts(plan.model)["layers.1.self_attention.linear_qkv.weight"]
    assert [part.name for part in held] == [f"model.layers.1.self_attn.{x}_proj.weight" for x in "qkv"]
    assert [part.rows.tolist() for part in held] == [
        [0, 1, 2, 3, 8, 9, 10, 11],
        [4, 5, 12, 13],
        [6, 7, 14, 15],
    ]
    gate, up = parts(plan.model)["layers.0.mlp.linear_fc1.weight"]
    assert (gate.rows.tolist(), up.rows.tolist()) == ([0, 1, 2], [3, 4, 5])
    assert up.name == "model.layers.0.mlp.up_proj.weight"


def test_no_dropout_and_no_row_without_gradient_whatever_the_file_says(tmp_path: Path):
    config = {
        "model_type": "gpt2",
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 61,
        "n_positions": 64,
        "attn_pdrop": 0.3,
        "pad_token_id": 7,
        "torch_dtype": "float16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    recipe = write(
        tmp_path, SMALL.replace(SMALL[SMALL.index("{arch") : SMALL.index("}\n") + 1], "config.json")
    )
    changes = ["trainer=transformers", "parallel={zero: 2}", "cluster.gpus_per_node=2"]
    plan = make_plan(load_recipe(recipe, changes))
    model = make_model(plan, torch.device("cpu"), {})
    drops = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    assert drops == {0.0}
    assert model.training
    assert model.get_input_embeddings().padding_idx is None
    assert model.dtype == torch.float32
    assert {d.key for d in plan.decisions} >= {"model.attn_pdrop"}


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Plan, Path, Any]:
    """A plan and the folder of a model of its shape that transformers wrote, in several files."""
    plan = plan_for(SHAPES["qwen3"])
    model = filled(plan)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(tmp_path / "weights", max_shard_size="40KB")
    assert len(list((tmp_path / "weights").glob("*.safetensors"))) > 2
    return plan, tmp_path / "weights", model


def test_the_loss_of_weights_from_files_is_hugging_faces_own(saved):
    plan, folder, model = saved
    ours = make_model(plan, torch.device("cpu"), {})
    hf_weights.load(ours, plan, folder, rank=0)
    samples = torch.arange(2 * 33).view(2, 33) * 11 % 71
    batch = (samples[:, :-1], torch.tensor([0, 1])), samples[:, 1:]
    loss = WithLoss(ours)(*batch)
    # Their own loss shifts the labels itself.
    assert loss.item() == pytest.approx(model(input_ids=samples, labels=samples).loss.item(), abs=1e-6)
    drawn = WithLoss(filled(plan))(*batch)
    assert abs(loss.item() - drawn.item()) > 1e-2


def test_files_of_older_versions_are_taken(tmp_path: Path):
    """Names of the bare model, masks beside the weights, the tied head under both of its names."""
    plan = plan_for(SHAPES["gpt"])
    model = filled(plan)
    with torch.no_grad():
        model.transformer.wpe.weight.fill_(0.5)
    tensors = {name.removeprefix("transformer."): w.clone() for name, w in model.state_dict().items()}
    assert "lm_head.weight" in tensors
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(plan.model.hf_config))
    ours = make_model(plan, torch.device("cpu"), {})
    hf_weights.load(ours, plan, tmp_path, rank=0)
    saved = model.state_dict()
    assert all(torch.equal(weight, saved[name]) for name, weight in ours.state_dict().items())


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        ("missing", "DSF344", "model.norm.weight is missing"),
        ("head-alone", "DSF344", "model.embed_tokens.weight is missing"),
        ("extra", "DSF344", "model.layers.9.weight is no parameter of the model"),
        ("shape", "DSF344", "model.norm.weight has shape [3], not [64]"),
        ("untied", "DSF344", "lm_head.weight is not model.embed_tokens.weight"),
        ("config", "DSF344", "norm_eps 0.0001, not 1e-06"),
        ("truncated", "DSF343", "cannot be read"),
        ("pickle", "DSF343", "holds no *.safetensors"),
        ("listed", "DSF344", "ghost is listed but in no file"),
    ],
)
def test_weights_that_do_not_fit_are_refused_before_anything_is_filled(saved, tmp_path, fault, code, told):
    plan, source, model = saved
    tensors = {
        name: weight.clone() for name, weight in model.state_dict().items() if name != "lm_head.weight"
    }
    norm = "model.norm.weight"
    if fault == "missing":
        del tensors[norm]
    elif fault == "head-alone":
        tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    elif fault == "extra":
        tensors["model.layers.9.weight"] = torch.zeros(2)
    elif fault == "shape":
        tensors[norm] = torch.zeros(3)
    elif fault == "untied":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    folder = tmp_path / "other"
    folder.mkdir()
    config = json.loads(source.joinpath("config.json").read_text())
    if fault == "config":
        config["rms_norm_eps"] = 1e-4
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    save_file(tensors, path)
    if fault == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif fault == "pickle":
        path.unlink()
        torch.save(tensors, folder / "pytorch_model.bin")
    elif fault == "listed":
        (folder / "model.safetensors.index.json").write_text('{"weight_map": {"ghost": "x.safetensors"}}')
    ours = filled(plan)
    before = {name: weight.clone() for name, weight in ours.state_dict().items()}
    with pytest.raises(DsforgeError) as caught:
        hf_weights.load(ours, plan, folder, rank=0)
    assert caught.value.code == code
    assert told in caught.value.message
    assert caught.value.place is not None
    assert all(torch.equal(weight, before[name]) for name, weight in ours.state_dict().items())
