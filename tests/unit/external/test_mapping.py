"""What a recipe says arrives in the options that each program's parser knows, with the same meaning."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from dsforge.catalog.engines.capabilities import capabilities
from dsforge.catalog.engines.deepspeed import known_keys
from dsforge.catalog.engines.flavours import FLAVOURS, flavour_of
from dsforge.external.mapping import arguments, keys_of, tree
from dsforge.foreign.deepspeed.check import check_deepspeed
from dsforge.plan.program import program
from dsforge.recipe.load import load_recipe
from dsforge.recipe.model import Recipe
from dsforge.recipe.vocabulary import walk
from tests.external_support.neox import Refused, data_parallel, deepspeed_config, settings_of
from tests.external_support.recipes import external, parser, values
from tests.support.recipes import CONFIGURED, OWN, SHIPPED

MEGATRON = ("megatron-deepspeed", "megatron-lm")


def parsed(flavour: str, found: dict[str, Any], passed: tuple[str, ...] = ()) -> Any:
    words = [word.text for word in arguments(flavour_of(flavour), found, passed)]
    return parser(flavour).parse_args(words)


def same_plan(flavour: str, found: dict[str, Any]) -> None:
    """Recompute what the program would from its arguments, as its own code does."""
    given = parsed(flavour, found)
    world = found["plan.world_size"]
    dp = world // (given.tensor_model_parallel_size * given.pipeline_model_parallel_size)
    assert dp == found["parallel.dp"]
    assert given.micro_batch_size == found["batch.micro"]
    assert given.global_batch_size // (given.micro_batch_size * dp) == found["plan.accumulation_steps"]
    assert given.global_batch_size % (given.micro_batch_size * dp) == 0
    stage = given.zero_stage if flavour == "megatron-deepspeed" else int(given.use_distributed_optimizer)
    assert stage == (
        found["parallel.zero"] if flavour == "megatron-deepspeed" else found["parallel.zero"] == 1
    )
    assert given.train_iters == found["train.steps"]
    assert (given.lr, given.min_lr) == (found["optimizer.lr"], found["optimizer.min_lr"])
    assert (given.bf16, given.fp16) == tuple(found["train.precision"] == word for word in ("bf16", "fp16"))
    eod = 1 if flavour == "megatron-deepspeed" else 0
    step = given.make_vocab_size_divisible_by * given.tensor_model_parallel_size
    assert -(-(given.vocab_size + eod) // step) * step == found["plan.padded_vocab"]
    assert (given.hidden_dropout, given.attention_dropout) == (
        found["train.dropout"],
        found["train.attention_dropout"],
    )


def same_configuration(found: dict[str, Any]) -> None:
    """Recompute what the program and its DeepSpeed would from its configuration, as their own code does."""
    made, _ = tree(flavour_of("gpt-neox"), found)
    if found["parallel.zero"] > 1 and found["parallel.tp"] > 1:
        with pytest.raises(Refused):  # and DSF144 says so before
            settings_of(made)
        return
    settings = settings_of(made)
    assert data_parallel(settings) == found["parallel.dp"]
    assert (settings["pipe_parallel_size"] == 0) == (found["parallel.pp"] == 1)
    assert settings["precision"] == {"bf16": "bfloat16"}.get(
        found["train.precision"], found["train.precision"]
    )
    step = settings["make_vocab_size_divisible_by"] * settings["model_parallel_size"]
    assert -(-found["model.vocab"] // step) * step == found["plan.padded_vocab"]
    engine = deepspeed_config(settings)
    assert not [
        one
        for one in check_deepspeed(json.dumps(engine), "ds", known_keys(), replicas=found["parallel.dp"])
        if one.severity == "error"
    ]
    numbers = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_clipping")
    assert [engine[name] for name in numbers] == [
        found["batch.global_size"],
        found["batch.micro"],
        found["optimizer.grad_clip"],
    ]
    assert engine.get("gradient_accumulation_steps", 1) == found["plan.accumulation_steps"]
    assert engine["zero_optimization"]["stage"] == found["parallel.zero"]
    assert [name for name in ("bf16", "fp16") if engine.get(name, {}).get("enabled")] == [
        word for word in ("bf16", "fp16") if word == found["train.precision"]
    ]


LIKE_THEM = [path for path in SHIPPED if path in CONFIGURED or path not in OWN]
"""Hugging Face's models hold their vocabulary as it is, unless their engine is one of the programs' too."""


@pytest.mark.parametrize("path", LIKE_THEM, ids=lambda path: path.stem)
def test_shipped_recipes_mean_the_same_to_each_program(path):
    recipe = load_recipe(path)
    found = values(recipe)
    for flavour in MEGATRON:
        same_plan(flavour, found)
    same_configuration(found)


def generated(seed: int) -> list[dict[str, Any]]:
    pick = random.Random(seed)
    tp, pp, dp = (pick.choice((1, 2, 4)) for _ in range(3))
    micro, accumulation = pick.choice((1, 2, 4)), pick.choice((1, 2, 8))
    zero = pick.choice((0, 1) if pp > 1 else (0, 1, 2, 3))
    steps = pick.randint(20, 5000)
    heads = 4 * pick.choice((1, 2))
    return [
        {
            "model": {
                "arch": pick.choice(("gpt", "llama")),
                "layers": 4 * pick.choice((1, 2)),
                "heads": heads,
                "hidden": 64 * heads,
                "kv_heads": pick.choice((4, heads)),
                "ffn_hidden": 512,
                "vocab": pick.randint(257, 60_000),
                "tied": pick.choice((True, False)),
            },
            "cluster": {
                "nodes": 1,
                "gpus_per_node": tp * pp * dp,
                "gpu": pick.choice(("cpu", "h100-sxm-80gb")),
            },
            "parallel": {"tp": tp, "pp": pp, "dp": dp, "zero": zero},
            "batch": {
                "global": micro * accumulation * dp,
                "micro": micro,
                "seq_len": pick.choice((64, 1000)),
            },
            "train": {
                "steps": steps,
                "precision": pick.choice(("fp32", "bf16", "fp16")),
                "recompute": pick.choice(("none", "full")),
                "seed": pick.randint(1, 10**6),
                "dropout": pick.choice((0.0, 0.1)),
            },
            "optimizer": {
                "lr": pick.choice((3e-4, 1e-5, 0.00123)),
                "min_lr": 1e-6,
                "warmup_steps": pick.randint(0, 9),
                "lr_schedule": pick.choice(("cosine", "linear", "constant")),
                "grad_clip": 0.3,
            },
            "checkpoint": {
                "every_steps": pick.choice((0, 7)),
                "resume": pick.choice(("auto", "never", "old")),
            },
        }
    ]


@pytest.mark.parametrize("seed", range(200))
def test_generated_recipes_mean_the_same_to_each_program(seed):
    for flavour in MEGATRON:
        same_plan(flavour, values(external(flavour, *generated(seed))))
    same_configuration(values(external("gpt-neox", *generated(seed))))


@pytest.mark.parametrize("flavour", [name for name in FLAVOURS if name != "script"])
def test_every_key_of_a_recipe_is_mapped_refused_or_served(flavour):
    """A script is handed what its arguments ask for; the rule DSF145 refuses the rest."""
    known, keys = flavour_of(flavour), set(walk(Recipe))
    told = {name for row in known.rows for name in keys_of(row)}
    told |= {*capabilities(flavour).honours, *known.served, "train.tokens"}  # tokens become train.steps
    sections = {key.rpartition(".")[0] for key in keys}
    missing = {key for key in keys - sections if not told & set(accumulate_dots(key))}
    assert missing == set()


def accumulate_dots(key: str) -> list[str]:
    """Return a key and every section around it."""
    parts = key.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def test_values_of_any_text_are_arguments_of_their_own():
    hostile = ("--wandb-exp-name", 'it\'s $HOME; `x` "quoted" {"a": 1}')
    recipe = external("megatron-lm", arguments=list(hostile))
    made = program(recipe.recipe.external, values(recipe))
    assert tuple(word.text for word in made.arguments[-2:]) == hostile


def test_a_free_option_is_the_users_and_stands_once():
    recipe = external("megatron-deepspeed", arguments=["--log-interval", "5"])
    words = [
        w.text for w in arguments(flavour_of("megatron-deepspeed"), values(recipe), ["--log-interval", "5"])
    ]
    assert words.count("--log-interval") == 1
    assert parser("megatron-deepspeed").parse_args(words).log_interval == 5


def test_a_pipeline_of_one_stage_is_no_pipeline():
    whole = values(external("megatron-deepspeed", {"parallel": {"pp": 1, "dp": 4, "zero": 3}}))
    assert parsed("megatron-deepspeed", whole).no_pipeline_parallel
    assert parsed("megatron-deepspeed", whole).zero_stage == 3
    assert not parsed("megatron-deepspeed", values(external("megatron-deepspeed"))).no_pipeline_parallel


def test_grouped_heads_take_two_options_in_megatron_lm():
    grouped = values(external("megatron-lm", {"model": {"arch": "llama", "kv_heads": 2}}))
    given = parsed("megatron-lm", grouped)
    assert (given.group_query_attention, given.num_query_groups) == (True, 2)
    assert given.position_embedding_type == "rope"
    assert given.rotary_base == 10_000
    assert not given.add_bias_linear


def test_paths_start_where_the_run_says():
    data = {"data": {"train": [[0.3, "a"], [0.7, "b"]], "valid": [[1.0, "v"]]}, "train": {"eval_every": 5}}
    recipe = external("megatron-deepspeed", data)
    words = list(arguments(flavour_of("megatron-deepspeed"), values(recipe), ()))
    at = [word.text for word in words].index("--train-data-path")
    assert [(word.text, word.base) for word in words[at + 1 : at + 5]] == [
        ("0.3", None),
        ("a", "root"),
        ("0.7", None),
        ("b", "root"),
    ]
    assert ("ds_config.json", "bundle") in [(word.text, word.base) for word in words]
