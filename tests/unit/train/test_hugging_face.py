"""The transformers trainer's model: Hugging Face's classes with our first weights, or weights from files."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from dsforge.base.errors import DsforgeError
from dsforge.catalog.hf.reader import model_row
from dsforge.catalog.hf.training import training_config
from dsforge.layout.hf_tensors import tensors_of
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe
from dsforge.records.weights import find_tensors
from dsforge.train import hf_weights, reference_model
from dsforge.train.hf_names import from_hugging_face, parts, to_hugging_face
from dsforge.train.hugging_face import WithLoss, make_model
from dsforge.train.run import resumed_from
from tests.support.recipes import SMALL, plan_of, write

SHAPES: dict[str, dict[str, Any]] = {
    "gpt": {"arch": "gpt", "heads": 4, "kv_heads": 4, "ffn_hidden": 96},
    "gpt-untied": {"arch": "gpt", "heads": 4, "kv_heads": 4, "tied": False},
    "llama": {"arch": "llama", "heads": 6, "kv_heads": 2, "hidden": 72, "rope_theta": 5e5, "norm_eps": 1e-3},
    "llama-tied-wide-heads": {"arch": "llama", "tied": True, "head_dim": 20},
    "qwen2": {"arch": "qwen2"},
    "qwen3": {"arch": "qwen3", "tied": True, "head_dim": 24},
    "mistral": {"arch": "llama", "window": 9},
    "gpt-neox": {"arch": "gpt-neox", "heads": 4, "kv_heads": 4, "rotary_fraction": 0.5},
    "gemma": {"arch": "gemma", "kv_heads": 1, "head_dim": 24},
    "mixtral": {
        "arch": "mixtral",
        "ffn_hidden": None,
        "experts": {"count": 5, "active": 2, "ffn_hidden": 20},
    },
    "qwen3-moe": {
        "arch": "qwen3",
        "ffn_hidden": 28,
        "experts": {
            "count": 5,
            "active": 3,
            "ffn_hidden": 20,
            "normalised": False,
            "dense_layers": [0],
        },
    },
}


def plan_for(shape: dict[str, Any], **changes: Any) -> Plan:
    one = {"tp": 1, "pp": 1, "dp": 1, "zero": 0}
    cluster = {"gpus_per_node": 1}
    small = {"layers": 2, "vocab": 71}
    return plan_of(
        {"trainer": "transformers", "model": {**small, **shape}, "parallel": one, "cluster": cluster}, changes
    )


def plan_of_config(folder: Path, config: dict[str, Any]) -> Plan:
    (folder / "config.json").write_text(json.dumps(config))
    recipe = write(folder, SMALL.replace(SMALL[SMALL.index("{arch") : SMALL.index("}\n") + 1], "config.json"))
    changes = ["trainer=transformers", "parallel={zero: 2}", "cluster.gpus_per_node=2"]
    return make_plan(load_recipe(recipe, changes))


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
    ours = reference_model.logits(
        plan.model, reference_model.first_weights(plan.model, plan.train.seed), tokens
    )
    assert plan.model.padded_vocab == 71
    assert theirs.shape == ours.shape
    assert (theirs - ours).abs().max().item() <= 1e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_any_weights_mean_the_same_under_either_name(shape: str):
    plan = plan_for(SHAPES[shape])
    weights = restless(reference_model.first_weights(plan.model, 1))
    model = make_model(plan, torch.device("cpu"), {})
    named = to_hugging_face((weights[name], some) for name, some in parts(plan.model).items())
    model.load_state_dict(named, strict=False)
    assert set(named) == set(dict(model.named_parameters()))
    tokens = torch.arange(2 * 40).view(2, 40) * 7 % 71
    difference = model(input_ids=tokens).logits - reference_model.logits(plan.model, weights, tokens)
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


def test_a_config_that_asks_for_a_balance_loss_is_told_where_it_is_set(tmp_path: Path):
    experts = {"num_local_experts": 3, "num_experts_per_tok": 2, "output_router_logits": True}
    plan = plan_of_config(tmp_path, {"model_type": "mixtral", **BARE["llama"], **experts, "vocab_size": 61})
    (decision,) = (one for one in plan.decisions if one.key == "model.output_router_logits")
    assert (decision.value, "train.balance_loss" in decision.why) == (False, True)
    assert plan.train.balance_loss == 0.0


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
    plan = plan_of_config(tmp_path, config)
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


def test_the_head_of_gpt_neox_is_found_under_its_older_name(tmp_path: Path):
    plan = plan_for(SHAPES["gpt-neox"])
    model = filled(plan)
    tensors = {name: weight.clone() for name, weight in model.named_parameters()}
    tensors["embed_out.weight"] = tensors.pop("lm_head.weight") + 1
    tensors["gpt_neox.layers.0.attention.masked_bias"] = torch.ones(1)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(plan.model.hf_config))
    ours = make_model(plan, torch.device("cpu"), {})
    hf_weights.load(ours, plan, tmp_path, rank=0)
    assert torch.equal(ours.lm_head.weight, tensors["embed_out.weight"])


def test_each_tensor_is_read_from_the_file_that_the_index_names(saved):
    """No stray file and no second copy in a named one wins over it; a byte-order mark is no fault."""
    plan, folder, model = saved
    index = folder / "model.safetensors.index.json"
    where = json.loads(index.read_text())["weight_map"]
    index.write_bytes(b"\xef\xbb\xbf" + index.read_bytes())
    norm = "model.norm.weight"
    other = next(file for file in sorted(set(where.values()), reverse=True) if file != where[norm])
    save_file({**load_file(folder / other), norm: torch.full((64,), 9.0)}, folder / other)
    save_file({norm: torch.full((64,), 8.0)}, folder / "zz.safetensors")
    ours = make_model(plan, torch.device("cpu"), {})
    hf_weights.load(ours, plan, folder, rank=0)
    saved_weights = model.state_dict()
    assert all(torch.equal(weight, saved_weights[name]) for name, weight in ours.state_dict().items())


def test_without_an_index_the_one_file_of_the_usual_name_is_read(saved, tmp_path: Path):
    plan, source, model = saved
    folder = tmp_path / "one"
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    save_file({name: w.clone() for name, w in model.named_parameters()}, folder / "model.safetensors")
    save_file({"model.norm.weight": torch.full((64,), 8.0)}, folder / "training_copy.safetensors")
    ours = make_model(plan, torch.device("cpu"), {})
    hf_weights.load(ours, plan, folder, rank=0)
    assert torch.equal(ours.model.norm.weight, model.model.norm.weight)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_values_that_are_not_finite_in_the_runs_precision_are_refused(saved, tmp_path: Path, value: float):
    plan, source, model = saved
    folder = tmp_path / "bad"
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    tensors = {name: weight.double() for name, weight in model.named_parameters()}
    tensors["model.norm.weight"][5] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(DsforgeError) as caught:
        hf_weights.load(make_model(plan, torch.device("cpu"), {}), plan, folder, rank=0)
    assert caught.value.code == "DSF344"
    assert "model.norm.weight holds values that are not finite" in caught.value.message


def test_a_scaled_rope_leaves_the_plan_as_it_was(tmp_path: Path):
    """transformers completes the mapping that it is given; the plan's own would no more be the file's."""
    config = {
        "model_type": "qwen2",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 61,
        "max_position_embeddings": 64,
        "rope_scaling": {"type": "yarn", "factor": 4.0},
    }
    plan = plan_of_config(tmp_path, config)
    before = plan.model_dump_json()
    model = make_model(plan, torch.device("cpu"), {})
    assert plan.model_dump_json() == before
    assert model.config.rope_parameters["original_max_position_embeddings"] == 64
    save_file(
        {name: torch.ones_like(w) for name, w in model.named_parameters()}, tmp_path / "model.safetensors"
    )
    hf_weights.load(model, plan, tmp_path, rank=0)


@pytest.mark.parametrize("shape", ["mixtral", "qwen3-moe"])
def test_experts_are_found_one_by_one_in_files(tmp_path: Path, shape: str):
    plan = plan_for(SHAPES[shape])
    model = filled(plan)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(tmp_path)
    ours = make_model(plan, torch.device("cpu"), {})
    hf_weights.load(ours, plan, tmp_path, rank=0)
    saved_weights = model.state_dict()
    assert all(torch.equal(weight, saved_weights[name]) for name, weight in ours.state_dict().items())
    tensors = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in sorted(tensors) if ".experts.4." in name)
    save_file({name: one for name, one in tensors.items() if name != lost}, tmp_path / "model.safetensors")
    with pytest.raises(DsforgeError, match=f"{lost} is missing") as caught:
        hf_weights.load(ours, plan, tmp_path, rank=0)
    assert caught.value.code == "DSF344"


TYPES = {"int8": torch.int8, "bool": torch.bool, "fp8": torch.float8_e4m3fn}
INDEXES = {
    "listed": '{"weight_map": {"ghost": "model.safetensors"}}',
    "map": '{"weight_map": [1, "a"]}',
    "file": '{"weight_map": {"ghost": "../model.safetensors"}}',
    "brackets": "[" * 200_000,
    "list": "[]",
}


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        ("missing", "DSF344", "model.norm.weight is missing"),
        ("head-alone", "DSF344", "model.embed_tokens.weight is missing"),
        ("extra", "DSF344", "model.layers.9.weight is no parameter of the model"),
        ("shape", "DSF344", "model.norm.weight has shape [3], not [64]"),
        ("int8", "DSF344", "model.norm.weight is of type I8, not one of F64, F32, F16, BF16"),
        ("bool", "DSF344", "model.norm.weight is of type BOOL"),
        ("fp8", "DSF344", "model.norm.weight is of type F8_E4M3"),
        ("twice", "DSF344", "model.norm.weight stands in a.safetensors and in b.safetensors"),
        ("map", "DSF343", "`weight_map` is not an object"),
        ("file", "DSF343", "does not name a *.safetensors beside it for ghost"),
        ("brackets", "DSF343", "nested too deeply"),
        ("list", "DSF343", "not a JSON object"),
        ("untied", "DSF344", "lm_head.weight is not model.embed_tokens.weight"),
        ("config", "DSF344", "norm_eps 0.0001, not 1e-06"),
        ("truncated", "DSF343", "cannot be read"),
        ("pickle", "DSF343", "holds no *.safetensors"),
        ("listed", "DSF344", "ghost is not in model.safetensors"),
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
    elif fault in TYPES:
        tensors[norm] = tensors[norm].to(TYPES[fault])
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
    elif fault == "twice":
        path.rename(folder / "b.safetensors")
        save_file({norm: torch.ones(64)}, folder / "a.safetensors")
    elif fault in INDEXES:
        (folder / "model.safetensors.index.json").write_text(INDEXES[fault])
    ours = filled(plan)
    before = {name: weight.clone() for name, weight in ours.state_dict().items()}
    with pytest.raises(DsforgeError) as caught:
        hf_weights.load(ours, plan, folder, rank=0)
    assert caught.value.code == code
    assert told in caught.value.message
    assert caught.value.place is not None
    assert all(torch.equal(weight, before[name]) for name, weight in ours.state_dict().items())


BARE: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 11, "n_positions": 16},
    **{
        name: {
            "hidden_size": 8,
            "intermediate_size": 12,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "vocab_size": 11,
        }
        for name in ("gemma", "gpt_neox", "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe")
    },
}
BARE["mixtral"] |= {"num_local_experts": 3, "num_experts_per_tok": 2}
BARE["qwen3_moe"] |= {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 6}
ODD: list[Any] = [None, True, False, 0, 1, 2, -1, 0.5, 1e308, float("nan"), 10**400, 10**30, "", "silu"]
ODD += ["\ud800", [], [[]], ["full_attention"] * 2, {}, {"0": 1}, {"rope_type": {}}, {"factor": "x"}]
ODD += [{"rope_type": kind, "factor": 2, "rope_theta": 5} for kind in ("yarn", "linear", "dynamic", "llama3")]


@pytest.mark.parametrize("model_type", BARE)
def test_what_is_read_of_a_config_transformers_builds(model_type: str):
    """Any value under any key of the class is refused by us or taken by them."""
    bare = {"model_type": model_type, **BARE[model_type]}
    known = set(AutoConfig.for_model(**bare).to_dict()) | {"rope_scaling", "rope_theta", "layer_types"}
    known |= {"rotary_pct", "rotary_emb_base", "hidden_activation"}
    taken, refusals = 0, list[str]()
    for key in sorted(known | {"attribute_map", "pruned_heads", "quantization_config", "per_layer_config"}):
        for value in ODD:
            config = {**bare, key: value}
            try:
                model_row(config, "config.json")
                read = training_config(config, "config.json")
            except DsforgeError as error:
                refusals.append(error.message)
                continue
            if max((n for n in read.values() if type(n) is int), default=0) > 1000:
                continue
            with torch.device("meta"):
                AutoModelForCausalLM.from_config(AutoConfig.for_model(**copy.deepcopy(read)))
            taken += 1
    assert taken > len(ODD)
    assert len(refusals) > len(ODD)
    assert all(message.isprintable() and message.encode() for message in refusals)


def test_weights_beside_a_quantised_config_are_refused(saved):
    plan, folder, model = saved
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"bits": 4}}))
    with pytest.raises(DsforgeError, match="quantization_config"):
        hf_weights.load(model, plan, folder, rank=0)


def test_a_key_that_may_change_the_model_is_refused_where_the_recipe_names_the_file(tmp_path: Path):
    config = {"model_type": "llama", **BARE["llama"], "attribute_map": {"hidden_size": "vocab_size"}}
    with pytest.raises(DsforgeError) as caught:
        plan_of_config(tmp_path, config)
    assert (caught.value.code, caught.value.exit_code) == ("DSF034", 1)
    assert caught.value.place is not None
    assert caught.value.place.line == 3


@pytest.mark.parametrize("shape", SHAPES)
def test_the_tensors_that_are_looked_for_are_those_that_transformers_writes(tmp_path: Path, shape: str):
    plan = plan_for(SHAPES[shape])
    model = filled(plan)
    model.save_pretrained(tmp_path)
    wanted = tensors_of(plan.model.hf_config)
    assert wanted.shapes == {name: one.shape for name, one in find_tensors(tmp_path).items()}
    assert wanted.prefix == model.base_model_prefix
    assert set(wanted.tied) == set(model.all_tied_weights_keys)


def test_a_config_with_biases_has_the_tensors_that_are_looked_for():
    config = {"model_type": "llama", **BARE["llama"], "attention_bias": True, "mlp_bias": True}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    assert tensors_of(config).shapes == {name: tuple(one.shape) for name, one in model.named_parameters()}


def test_a_resumed_run_says_that_its_first_weights_are_not_used():
    plan = plan_for(SHAPES["qwen3"])
    assert resumed_from(20, {}, plan) == "resumed from the checkpoint of step 20"
    told = resumed_from(20, {}, plan_for(SHAPES["qwen3"], checkpoint={"init": "weights/q"}))
    assert told == "resumed from the checkpoint of step 20; the first weights in weights/q are not used"
