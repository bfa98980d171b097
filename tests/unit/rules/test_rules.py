"""Each rule fires where it must, says where and how to mend it, and is silent elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsforge.base.errors import Finding, Severity
from dsforge.catalog.engines.capabilities import capabilities, trainers
from dsforge.recipe.model import Recipe
from dsforge.recipe.vocabulary import walk
from dsforge.rules.registry import rules
from tests.support.broken import BROKEN, NOT_HONOURED, Broken
from tests.support.recipes import SHIPPED, SMALL, findings_of, write

ON_DISK = ("offload.optimizer=nvme", "offload.path=/disk")


def of(code: str, found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == code]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda case: f"{case.code}-{case.at}")
def test_fires_with_place_hint_and_fix(broken: Broken, tmp_path: Path):
    recipe = write(tmp_path, broken.text)
    (finding,) = of(broken.code, findings_of(recipe))
    assert finding.severity is rules()[broken.code].severity
    assert finding.place is not None
    assert finding.place.file == str(recipe)
    assert (finding.place.line, finding.place.column) == broken.place
    assert finding.hint
    assert (str(finding.fix) if finding.fix else None) == broken.fix


@pytest.mark.parametrize("broken", [b for b in BROKEN if b.fix], ids=lambda case: f"{case.code}-{case.at}")
def test_the_fix_silences_it(broken: Broken, tmp_path: Path):
    assert broken.fix is not None
    recipe = write(tmp_path, broken.text)
    assert of(broken.code, findings_of(recipe, broken.fix)) == []


@pytest.mark.parametrize("key", NOT_HONOURED)
def test_a_key_that_the_trainer_cannot_honour_is_refused(key: str, tmp_path: Path):
    recipe = write(tmp_path)
    (finding,) = of("DSF140", findings_of(recipe, f"{key}={NOT_HONOURED[key]}"))
    assert finding.key == key
    assert finding.severity is Severity.ERROR
    assert str(finding.place) == f"argument `{key}={NOT_HONOURED[key]}`"
    assert finding.fix is not None
    assert of("DSF140", findings_of(recipe, f"{key}={NOT_HONOURED[key]}", str(finding.fix))) == []


def test_every_limited_key_is_tried_here():
    assert set(capabilities("forge").honours) == set(NOT_HONOURED)


TAKEN_BY_TRANSFORMERS = {
    "parallel": {"tp", "dp", "zero"},
    "offload": {"optimizer", "parameters", "path"},
    "batch": {"global", "micro", "seq_len"},
    "train": {
        *("steps", "tokens", "eval_every", "eval_samples", "seed", "balance_loss", "balance_over"),
        *("precision", "recompute", "recompute_every"),
        *("checks", "checks.gradients_every", "checks.parameters_every", "checks.modules"),
    },
    "optimizer": {
        *("type", "lr", "min_lr", "lr_schedule", "warmup_steps", "weight_decay", "betas", "eps", "grad_clip"),
        "momentum",
    },
    "data": {"train", "valid", "tokenizer", "workers"},
    "checkpoint": {"dir", "every_steps", "keep", "resume", "init", "at_end"},
}
"""Keys that the transformers trainer takes with any value. Of a key that is neither here nor limited in its
table nobody has asked yet whether it is honoured."""


@pytest.mark.parametrize("section", TAKEN_BY_TRANSFORMERS)
def test_a_new_key_is_limited_or_known_to_be_taken(section: str):
    keys = {key for key in walk(Recipe) if key.startswith(f"{section}.")}
    assert keys, section
    limited = set(capabilities("transformers").honours)
    assert keys - limited == {f"{section}.{key}" for key in TAKEN_BY_TRANSFORMERS[section]}


def test_virtual_stages_fill_a_pipeline_with_fewer_micro_batches(tmp_path: Path):
    program = (
        "trainer=external",
        "external={flavour: megatron-lm, path: x}",
        "batch={global: 8, seq_len: 64}",
    )
    whole = findings_of(write(tmp_path), *program, "parallel={pp: 4, dp: 2, zero: 1}")
    (found,) = of("DSF131", whole)
    assert "4 micro-batches over 4 stages leave 43% of each step idle" in found.message
    parts = "parallel={pp: 4, dp: 2, zero: 1, vp: 4, schedule: interleaved}"
    assert of("DSF131", findings_of(write(tmp_path), *program, parts, "model.layers=16")) == []


def test_tp_crosses_nodes_where_a_rack_is_wired_for_it(tmp_path: Path):
    recipe = write(tmp_path)
    wide = ("parallel={tp: 4, zero: 1}", "model.kv_heads=4", "cluster={nodes: 2, gpus_per_node: 2, gpu: %s}")
    for gpu, crossing in (("a100-sxm-80gb", 1), ("gb200", 0)):
        found = findings_of(recipe, *wide[:2], wide[2] % gpu)
        assert len(of("DSF130", found)) == crossing


def test_what_a_disk_cannot_read_to_its_place_is_named(tmp_path: Path):
    recipe = write(tmp_path)
    common = ("offload={optimizer: nvme, path: /x}", "cluster.gpu=a100-sxm-80gb", "parallel={dp: 8, zero: 3}")
    # 50,257 words of width 768 on 8 ranks; forge pads them to 50,304.
    (found,) = of("DSF801", findings_of(recipe, *common, "model=gpt2", "trainer=transformers"))
    assert "4,824,672 values of the vocabulary, which is no multiple of 128" in found.message
    assert of("DSF801", findings_of(recipe, *common, "model=gpt2")) == []
    assert of("DSF801", findings_of(recipe, *common, "model=llama3-8b", "trainer=transformers")) == []


def test_fp32_sums_are_what_does_not_fit(tmp_path: Path):
    # 6.738e9 parameters on 8 ranks, ZeRO-1, in GB: 37.1 of states and 27.0 of sums; an A100 has 42.9.
    llama2 = ("model=llama2-7b", "cluster.gpu=a100-sxm-40gb", "parallel={zero: 1}", "train.precision=bf16")
    (finding,) = of("DSF160", findings_of(write(tmp_path), *llama2))
    assert "needs 64.0 GB for model states and fp32 sums of gradients (27.0 GB of it)" in finding.message
    assert of("DSF160", findings_of(write(tmp_path), *llama2, "cluster.gpu=a100-sxm-80gb")) == []
    assert of("DSF160", findings_of(write(tmp_path), *llama2, "parallel.zero=2")) == []


def test_every_rule_is_broken_here():
    assert set(rules()) == {broken.code for broken in BROKEN} | {"DSF140"}


@pytest.mark.parametrize("recipe", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_are_clean(recipe: Path):
    assert findings_of(recipe) == []


def test_the_small_recipe_is_clean(tmp_path: Path):
    assert findings_of(write(tmp_path)) == []


def test_rules_explain_themselves():
    for code, rule in rules().items():
        assert code == rule.code
        assert rule.why.endswith(".")
        assert rule.summary
        assert rule.name == rule.name.lower()


def test_zero_0_with_a_pipeline_is_right_without_clipping_and_in_bf16(tmp_path: Path):
    recipe = write(tmp_path, SMALL.replace("zero: 1", "zero: 0"))
    assert of("DSF121", findings_of(recipe, "optimizer.grad_clip=0")) == []
    assert of("DSF121", findings_of(recipe, "train.precision=bf16")) == []
    assert of("DSF121", findings_of(recipe, "parallel.pp=1", "parallel.dp=4")) == []


def test_fp16_is_for_gpus_or_trainers_without_deepspeed(tmp_path: Path):
    recipe = write(tmp_path, SMALL.replace("fp32", "fp16"))
    (finding,) = findings_of(recipe)
    assert finding.code == "DSF813"
    assert "`trainer: fsdp`" in finding.hint
    assert findings_of(recipe, "cluster.gpu=v100-sxm-32gb") == []
    assert findings_of(recipe, "trainer=megatron-core") == []
    assert findings_of(recipe, "trainer=fsdp", "parallel={dp: 8, zero: 2}") == []


def test_zero_3_without_a_pipeline_is_legal(tmp_path: Path):
    recipe = write(tmp_path, SMALL)
    assert of("DSF120", findings_of(recipe, "parallel.zero=3", "parallel.pp=1", "parallel.dp=4")) == []


def test_numbers_in_the_message_are_right(tmp_path: Path):
    recipe = write(tmp_path, SMALL)
    (bubble,) = of("DSF131", findings_of(recipe, "batch.micro=4"))
    # 4 micro-batches over 2 stages: 1 / (4 + 1).
    assert bubble.message == "4 micro-batches over 2 stages leave 20% of each step idle"
    (batch,) = of("DSF111", findings_of(recipe, "batch.global=34"))
    assert batch.hint == "nearest legal: global 32 or 36, or micro 1, 17"
    (world,) = of("DSF110", findings_of(recipe, "parallel.dp=3"))
    assert world.message == "TP 2 x PP 2 x DP 3 = 12 ranks, the cluster has 1 x 8 = 8 ranks"


def test_an_allowed_code_only_warns(tmp_path: Path):
    from dsforge.plan.resolve import examine, make_plan
    from dsforge.recipe.load import load_recipe

    loaded = load_recipe(write(tmp_path, SMALL.replace("zero: 1", "zero: 0")))
    allowed = frozenset({"DSF121"})
    (finding,) = of("DSF121", examine(loaded, allowed))
    assert finding.severity is Severity.WARNING
    assert make_plan(loaded, allowed).layout.zero == 0


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (("launch.launcher=slurm", "cluster.hostfile=hosts"), "cluster.hostfile"),
        (("launch.slurm.partition=gpu",), "launch.slurm"),
        (("model.max_positions=64",), "model.max_positions"),
    ],
)
def test_a_key_to_remove_is_removed_by_the_argument_that_the_hint_names(
    tmp_path: Path, changes: tuple[str, ...], key: str
):
    recipe = write(tmp_path)
    hints = [finding.hint or "" for finding in findings_of(recipe, *changes)]
    argument = f"{key}=null"
    assert [f"remove {key} (as an argument: `{argument}`)" in hint for hint in hints].count(True) == 1, hints
    left = findings_of(recipe, *changes, argument)
    assert not any(argument in (finding.hint or "") for finding in left)


EXPERTS = (
    SMALL.replace("arch: llama", "arch: mixtral")
    .replace("ffn_hidden: 176", "experts: {count: 4, active: 2, ffn_hidden: 64}")
    .replace("precision: fp32", "precision: fp32, balance_loss: 0.01")
)


@pytest.mark.parametrize(
    ("changes", "code", "hint"),
    [
        # A balance loss is not what keeps a trainer from a model with experts.
        ({"trainer": "forge"}, "DSF141", "`trainer: megatron-core` with `parallel.sequence_parallel: true`"),
        (
            {"trainer": "forge", "parallel.ep": "2"},
            "DSF141",
            "`trainer: megatron-core` with `parallel.sequence_parallel: true`",
        ),
        (
            {"trainer": "transformers", "parallel.pp": "1"},
            "DSF805",
            "`tp: 1`, or `trainer: megatron-core` with `parallel.sequence_parallel: true`",
        ),
        ({"trainer": "transformers", "parallel.pp": "1", "parallel.zero": "3"}, "DSF805", "`tp: 1`"),
    ],
)
def test_a_hint_leads_to_no_second_refusal(changes: dict[str, str], code: str, hint: str, tmp_path: Path):
    words = [f"{key}={value}" for key, value in {"parallel.dp": "null", **changes}.items()]
    found = [one for one in findings_of(write(tmp_path, EXPERTS), *words) if one.severity is Severity.ERROR]
    assert {one.code for one in found} == {code}
    assert str(found[0].hint).partition(" trains it")[0] == hint


@pytest.mark.parametrize(
    ("changes", "code", "hint"),
    [
        (("parallel=null", "parallel.cp=2"), "DSF140", "set parallel.cp to `1`, or `trainer: megatron-core`"),
        (
            ("trainer=megatron-core", "parallel=null", "checkpoint.init=x"),
            "DSF140",
            "set checkpoint.init to `null`, or `trainer: ddp`",
        ),
        (
            (
                "trainer=ddp",
                "parallel=null",
                "model=llama3-70b",
                "cluster.gpu=h100-sxm-80gb",
                "batch.seq_len=64",
            ),
            "DSF160",
            "`trainer: fsdp`, whose ranks share states out, or more GPUs",
        ),
        (
            ("trainer=transformers", "parallel.pp=1", "parallel.dp=null", "parallel.zero=2", *ON_DISK),
            "DSF776",
            "`optimizer: cpu` without a path: under AutoTP DeepSpeed offloads to the CPU alone",
        ),
    ],
)
def test_a_hint_is_one_that_the_trainer_takes(changes: tuple[str, ...], code: str, hint: str, tmp_path: Path):
    found = [one for one in findings_of(write(tmp_path), *changes) if one.severity is Severity.ERROR]
    assert [(one.code, one.hint) for one in found] == [(code, hint)]


def test_the_trainers_that_a_reason_names_take_what_it_refuses():
    """Each row of another trainer's file that sends a user on sends to one that takes more."""
    named = [
        (key, row, other)
        for trainer in trainers()
        for key, row in capabilities(trainer).honours.items()
        for other in re.findall(r"`(?:trainer: )?([a-z-]+)`", row.why)
    ]
    assert ("parallel.zero", "fsdp") in {(key, other) for key, _, other in named}
    for key, row, other in named:
        taken = capabilities(other).honours.get(key)
        assert taken is None or set(taken.values) - set(row.values), (key, other)
