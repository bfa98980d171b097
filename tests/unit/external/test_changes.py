"""Options passed on that make the run another one: refused where they stand, whatever their parser says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dsforge.base.errors import Finding
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.catalog.engines.scripts import counts
from dsforge.external.options import option_table
from dsforge.plan.resolve import examine
from tests.external_support.recipes import external

PROGRAMS = ("megatron-lm", "megatron-deepspeed", "gpt-neox")
GPU = {"cluster": {"gpu": "h100-sxm-80gb"}, "train": {"precision": "bf16"}}


def refused(flavour: str, words: Sequence[str]) -> list[Finding]:
    recipe = external(flavour, GPU, arguments=list(words))
    return [one for one in examine(recipe) if one.code == "DSF144"]


@pytest.mark.parametrize("flavour", PROGRAMS)
def test_every_option_of_the_data_is_one_and_says_one_thing_alone(flavour):
    known, table = flavour_of(flavour), option_table(flavour)
    names = [name for change in known.changes for name in change.options]
    assert names
    assert [name for name in names if table.find(name) is None] == []
    assert len(names) == len(set(names))
    governed = {table.at(row.option).dest for row in known.rows if not row.free}
    assert [name for name in names if table.at(name).dest in governed or name in known.instead] == []
    assert counts(flavour) <= set(table)


MODEL, STEPS, LOADS = (
    "another model than the recipe's",
    "at other steps",
    "than the checkpoint as it was saved",
)


@pytest.mark.parametrize(
    ("flavour", "words", "why"),
    [
        *(
            ("megatron-lm", words, MODEL)
            for words in (
                "--num-experts 4",
                "--mtp-num-layers 1",
                "--multi-latent-attention",
                "--window-size 128,0",
                "--squared-relu",
                "--rotary-percent 0.5",
                "--use-rope-scaling",
                "--is-hybrid-model",
                "--hybrid-override-pattern M*M*",
                "--heterogeneous-layers-config-path a.json",
                "--spec a b",
                "--apply-residual-connection-post-layernorm",
            )
        ),
        ("megatron-lm", "--init-method-xavier-uniform", "starts from other weights"),
        ("megatron-lm", "--fp8-format hybrid", "another precision"),
        ("megatron-lm", "--exp-avg-dtype fp8", "another precision"),
        ("megatron-lm", "--decoupled-lr 1e-3", "otherwise than the recipe's optimizer"),
        ("megatron-lm", "--weight-decay-incr-style cosine", "otherwise than the recipe's optimizer"),
        ("megatron-lm", "--use-checkpoint-opt-param-scheduler", "another schedule"),
        ("megatron-lm", "--dataloader-type cyclic", "in another order"),
        ("megatron-lm", "--eval-global-batch-size 4", "validates at other steps"),
        ("megatron-lm", "--skip-train", STEPS),
        ("megatron-lm", "--exit-interval 5", STEPS),
        ("megatron-lm", "--exit-duration-in-mins 5", STEPS),
        *(
            ("megatron-lm", words, LOADS)
            for words in (
                "--finetune",
                "--no-load-optim",
                "--no-load-rng",
                "--ckpt-step 5",
                "--pretrained-checkpoint a",
                "--use-checkpoint-args",
            )
        ),
        ("megatron-lm", "--no-save-optim", "cannot go on from"),
        ("megatron-lm", "--log-interval 0", "fails or trains nothing"),
        ("megatron-deepspeed", "--num-experts 4", MODEL),
        ("megatron-deepspeed", "--mlp-type residual", MODEL),
        ("megatron-deepspeed", "--fp8-hybrid", "another precision"),
        ("megatron-deepspeed", "--cpu-optimizer", "of another kind, on the CPU"),
        ("megatron-deepspeed", "--weight-decay-incr-style cosine", "from a start to an end"),
        ("megatron-deepspeed", "--exit-interval 5", STEPS),
        ("megatron-deepspeed", "--inference", STEPS),
        ("megatron-deepspeed", "--finetune", LOADS),
        ("megatron-deepspeed", "--reset-iteration", LOADS),
        ("megatron-deepspeed", "--log-interval -1", "fails or trains nothing"),
        ("gpt-neox", "moe_num_experts=4", MODEL),
        ("gpt-neox", "use_mup=true", MODEL),
        ("gpt-neox", "use_qk_layernorm=true", MODEL),
        ("gpt-neox", 'sparsity_config={"block":16}', MODEL),
        ("gpt-neox", 'attention_config=[[["local"],4]]', "dense"),
        ("gpt-neox", 'attention_config=[[["global"],3]]', "no list for the recipe's layers"),
        ("gpt-neox", 'attention_config=[[["global",7],"all"]]', "no list for the recipe's layers"),
        ("gpt-neox", "finetune=true", LOADS),
        ("gpt-neox", 'deepspeed_extra_args={"zero_optimization":{"stage":3}}', "ZeRO"),
        ("gpt-neox", "deepspeed_extra_args.train_batch_size=3", "another size"),
        ("gpt-neox", "deepspeed_extra_args.fp16.enabled=true", "another precision"),
        ("gpt-neox", 'deepspeed_extra_args={"optimizer":{"type":"Lamb"}}', "otherwise"),
        ("gpt-neox", "log_interval=0", "fails or trains nothing"),
    ],
)
def test_what_makes_another_run_is_refused_at_its_word(flavour, words, why):
    passed = words.split()
    (fault,) = refused(flavour, ["--num-workers", "2", *passed] if passed[0][0] == "-" else passed)
    assert why in fault.message
    assert fault.hint
    if "attention_config" not in words:
        assert fault.key == f"external.arguments.{2 if passed[0][0] == '-' else 0}"


@pytest.mark.parametrize(
    ("flavour", "words"),
    [
        ("megatron-lm", "--overlap-grad-reduce --log-throughput --use-flash-attn --attention-backend flash"),
        ("megatron-lm", "--moe-permute-fusion --manual-gc --async-save --tp-comm-overlap"),
        ("megatron-lm", "--dataloader-type single --rotary-percent 1.0 --weight-decay-incr-style constant"),
        ("megatron-deepspeed", "--num-experts 1 --mlp-type standard --dataloader-type single"),
        ("megatron-deepspeed", "--log-params-norm --zero-reduce-scatter --partition-activations"),
        ("gpt-neox", 'attention_config=[[["flash"],"all"]] moe_num_experts=1 finetune=false'),
        ("gpt-neox", 'attention_config=["global","flash","global","flash"]'),
        ("gpt-neox", 'deepspeed_extra_args={"comms_logger":{"enabled":true}} log_interval=5'),
    ],
)
def test_speed_logs_and_what_the_program_does_anyway_pass(flavour, words):
    assert refused(flavour, words.split()) == []


def test_what_the_recipe_sets_itself_is_no_change():
    recipe = external("megatron-deepspeed", arguments=["--cpu-optimizer"])
    assert [one for one in examine(recipe) if one.code == "DSF144"] == []


@pytest.mark.parametrize("key", ["zero_optimization..stage", ".a", "a.", "zero_optimization.", "."])
def test_a_key_with_an_empty_part_is_none(key):
    (fault,) = [
        one for one in examine(external("gpt-neox", arguments=[f"{key}=1"])) if one.severity == "error"
    ]
    assert (fault.code, f"the program has no key `{key}`" in fault.message) == ("DSF143", True)
