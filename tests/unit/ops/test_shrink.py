"""How a large layout is made to fit a small machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dsforge.ops.shrink import shrink
from dsforge.ops.smoke import shrunk_recipe
from dsforge.plan.resolve import make_plan
from dsforge.recipe.load import load_recipe
from tests.support import recipes
from tests.support.recipes import ROOT

IN_FOUR_PARTS = ["parallel.cp=4", "parallel.dp=2"]


@pytest.mark.parametrize(
    ("max_ranks", "degrees"),
    # 8 x 8 x 16: DP to 2, then the larger of TP and PP is halved until it fits; then DP goes.
    [(128, (8, 8, 2)), (64, (4, 8, 2)), (32, (4, 4, 2)), (16, (2, 4, 2)), (8, (2, 2, 2)), (4, (2, 2, 1))],
)
def test_degrees_are_halved_the_larger_first(max_ranks: int, degrees: tuple[int, int, int]):
    recipe = load_recipe(ROOT / "recipes" / "gpt3-175b-1024a100.yaml")
    data = shrink(recipe.recipe, make_plan(recipe), max_ranks).data["parallel"]
    assert (data["tp"], data["pp"], data["dp"]) == degrees


@pytest.mark.parametrize(
    ("max_ranks", "degrees"),
    [(32, (8, 2, 2)), (16, (4, 2, 2)), (4, (2, 2, 1)), (2, (2, 1, 1))],
)
def test_sequences_stay_in_parts_where_the_machine_holds_them(max_ranks: int, degrees: tuple[int, int, int]):
    recipe = load_recipe(ROOT / "recipes" / "llama3-8b-128k-64h100.yaml", IN_FOUR_PARTS)
    small = shrink(recipe.recipe, make_plan(recipe), max_ranks)
    plan = make_plan(shrunk_recipe(recipe, small))
    assert (plan.layout.tp, plan.layout.cp, plan.layout.dp) == degrees
    assert {change.key: change.used for change in small.changes}["parallel.cp"] == degrees[1]


@pytest.mark.parametrize(
    ("name", "max_ranks", "key", "why", "lost"),
    [
        ("llama3-8b-128k-64h100", 4, "cp", "a short sequence has few parts", ("DP",)),
        ("llama3-8b-128k-64h100", 2, "cp", "no more than 2 ranks here", ("CP", "DP")),
        ("mixtral-8x7b-64h100", 8, "ep", "the most that divides the 2 ranks of a stage", ()),
        ("mixtral-8x7b-64h100", 2, "ep", "no more than 2 ranks here", ("DP", "EP")),
        ("llama3-70b-interleaved-256h100", 1, "vp", "a stage alone has none", ("TP", "PP", "DP", "VP")),
    ],
)
def test_what_few_ranks_leave_out_is_told_with_the_true_reason(
    name: str, max_ranks: int, key: str, why: str, lost: tuple[str, ...]
):
    recipe = load_recipe(ROOT / "recipes" / f"{name}.yaml", IN_FOUR_PARTS if "128k" in name else [])
    small = shrink(recipe.recipe, make_plan(recipe), max_ranks)
    told = {change.key: change.why for change in small.changes}
    assert told[f"parallel.{key}"].startswith(why)
    assert small.lost == lost


@pytest.mark.parametrize(("cp", "seq_len", "kept"), [(3, 6000, 60), (3, 18, 18), (6, 6144, 64), (5, 640, 60)])
def test_a_tiny_sequence_has_as_many_stretches_as_cp_asks_for(cp: int, seq_len: int, kept: int):
    recipe = recipes.loaded(
        {"trainer": "megatron-core", "cluster": {"gpus_per_node": cp}}
        | {"parallel": {"tp": 1, "pp": 1, "dp": 1, "cp": cp}, "batch": {"seq_len": seq_len}}
    )
    small = shrink(recipe.recipe, make_plan(recipe), 16)
    assert make_plan(shrunk_recipe(recipe, small)).batch.seq_len == kept


@pytest.mark.parametrize("trainer", ["forge", "megatron-core"])
def test_a_tiny_sequence_is_one_that_its_shards_split(trainer: str):
    recipe = recipes.loaded(
        {"trainer": trainer, "cluster": {"gpus_per_node": 3}}
        | {
            "model": {
                "arch": "llama",
                "layers": 2,
                "hidden": 96,
                "heads": 6,
                "kv_heads": 3,
                "ffn_hidden": 384,
            }
            | {"vocab": 512}
        }
        | {"parallel": {"tp": 3, "pp": 1, "dp": 1, "sequence_parallel": True}, "batch": {"seq_len": 72}}
    )
    small = shrink(recipe.recipe, make_plan(recipe), 3)
    assert make_plan(shrunk_recipe(recipe, small)).batch.seq_len == 63


@pytest.mark.parametrize(("max_ranks", "zero"), [(2, 0), (1, 1)])
def test_zero_0_in_16_bits_keeps_its_stages_or_becomes_1(max_ranks: int, zero: int):
    recipe = load_recipe(ROOT / "recipes" / "llama3-70b-256h100.yaml", ["parallel.zero=0"])
    small = shrink(recipe.recipe, make_plan(recipe), max_ranks)
    assert make_plan(shrunk_recipe(recipe, small)).layout.zero == zero
    assert ("parallel.zero" in {change.key for change in small.changes}) is (zero == 1)


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


@pytest.mark.parametrize("preset", ["mixtral-8x7b", "qwen3-30b-a3b"])
def test_experts_stay_experts_and_become_few(tmp_path: Path, preset: str):
    (tmp_path / "recipe.yaml").write_text(
        f"{{version: 1, model: {preset}, trainer: transformers, batch: {{global: 64, seq_len: 512}}, "
        "cluster: {nodes: 8, gpus_per_node: 8, gpu: h100-sxm-80gb}, "
        "parallel: {zero: 3}, train: {balance_loss: 0.02}}"
    )
    loaded = load_recipe(tmp_path / "recipe.yaml")
    original = make_plan(loaded)
    small = shrink(loaded.recipe, original, 4)
    told = {change.key: (change.recipe, change.used) for change in small.changes}
    assert told["model.experts.count"] == (original.model.experts.count, 4)
    plan = make_plan(shrunk_recipe(loaded, small))
    assert plan.model.experts == replace(original.model.experts, count=4, active=2, ffn_hidden=88)
    assert (plan.model.arch, plan.model.qk_norm) == (original.model.arch, original.model.qk_norm)
    assert plan.model.hf_config["model_type"] in ("mixtral", "qwen3_moe")
    assert (plan.train.balance_loss, plan.layout.zero) == (0.02, 3)


def test_each_change_is_told():
    recipe = load_recipe(ROOT / "recipes" / "gpt3-175b-1024a100.yaml")
    changes = {c.key: (c.recipe, c.used) for c in shrink(recipe.recipe, make_plan(recipe), 16).changes}
    assert changes["parallel.dp"] == (16, 2)
    assert changes["model.layers"] == (96, 8)  # two a stage
    assert changes["model.vocab"][0] == 50_257
    assert changes["cluster.nodes"] == (128, 1)
    assert changes["cluster.gpu"] == ("a100-sxm-80gb", "cpu")
    assert all(change.why for change in shrink(recipe.recipe, make_plan(recipe), 16).changes)


@pytest.mark.parametrize(
    ("name", "schedule", "max_ranks", "told"),
    [
        ("gpt3-175b-1024a100", "gpipe", 4, None),
        ("gpt3-175b-1024a100", "gpipe", 1, ("gpipe", "1f1b")),
        ("llama3-70b-interleaved-256h100", "interleaved", 4, None),
        ("llama3-70b-interleaved-256h100", "interleaved", 1, ("interleaved", "1f1b")),
    ],
)
def test_a_schedule_that_is_left_without_stages_is_changed(name, schedule, max_ranks, told):
    recipe = load_recipe(ROOT / "recipes" / f"{name}.yaml", [f"parallel.schedule={schedule}"])
    small = shrink(recipe.recipe, make_plan(recipe), max_ranks)
    assert small.data["parallel"]["schedule"] == (told[1] if told else schedule)
    changes = {change.key: (change.recipe, change.used) for change in small.changes}
    assert changes.get("parallel.schedule") == told


def test_what_is_offloaded_stays_offloaded_and_the_optimizer_is_the_recipes():
    changes = ["offload={optimizer: cpu, parameters: cpu}", "optimizer.type=lion"]
    recipe = load_recipe(ROOT / "recipes" / "llama3-8b-fsdp.yaml", changes)
    data = shrink(recipe.recipe, make_plan(recipe), 2).data
    assert data["offload"] == {"optimizer": "cpu", "parameters": "cpu", "path": None}
    assert data["optimizer"]["type"] == "lion"


@pytest.mark.parametrize(
    ("optimizer", "max_ranks", "parameters", "path"),
    [("nvme", 2, "nvme", "/disk"), ("nvme", 1, "cpu", "/disk"), ("cpu", 1, "cpu", None)],
)
def test_one_replica_on_a_cpu_keeps_its_parameters_off_the_disk(optimizer, max_ranks, parameters, path):
    places = f"offload={{optimizer: {optimizer}, parameters: nvme, path: /disk}}"
    changes = [places, "parallel={tp: 1, pp: 1, zero: 3}", "launch=null"]
    recipe = load_recipe(ROOT / "recipes" / "llama3-8b-64h100.yaml", changes)
    small = shrink(recipe.recipe, make_plan(recipe), max_ranks)
    assert small.data["offload"] == {"optimizer": optimizer, "parameters": parameters, "path": path}
    make_plan(shrunk_recipe(recipe, small))


@pytest.mark.parametrize(
    ("trainer", "gpu", "used"),
    [("forge", "cpu", "bf16"), ("forge", "v100-sxm-32gb", "fp16"), ("megatron-core", "cpu", "fp16")],
)
def test_fp16_becomes_bf16_where_deepspeed_trains_on_a_cpu(trainer: str, gpu: str, used: str):
    whole = {"trainer": trainer, "cluster": {"gpu": "v100-sxm-32gb"}, "train": {"precision": "fp16"}}
    recipe = recipes.loaded(whole)
    small = shrink(recipe.recipe, make_plan(recipe), 8, gpu=gpu)
    assert make_plan(shrunk_recipe(recipe, small)).train.precision == used
    told = [(one.recipe, one.used) for one in small.changes if one.key == "train.precision"]
    assert told == ([("fp16", "bf16")] if used == "bf16" else [])
