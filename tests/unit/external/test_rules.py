"""What is passed on, what a revision does wrong, and what a script is not handed: refused at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError, Finding
from dsforge.plan.resolve import examine, make_plan
from dsforge.recipe.load import load_recipe
from tests.external_support.recipes import external
from tests.support.recipes import loaded, write

RECIPE = """\
version: 1
model: {arch: gpt, layers: 4, hidden: 64, heads: 4, vocab: 512}
cluster: {nodes: 1, gpus_per_node: 4, gpu: cpu}
parallel: {pp: 2, zero: 1}
batch: {global: 8, micro: 1, seq_len: 64}
train: {steps: 30, precision: fp32}
trainer: external
external:
  flavour: FLAVOUR
  path: checkout
  arguments: [WORDS]
"""


def found(
    tmp_path: Path, flavour: str, words: str, *behind: str, changes: tuple[str, ...] = ()
) -> list[Finding]:
    recipe = write(tmp_path, RECIPE.replace("FLAVOUR", flavour).replace("WORDS", words))
    return [one for one in examine(load_recipe(recipe, changes, None, behind)) if one.severity == "error"]


@pytest.mark.parametrize(
    ("flavour", "words", "at", "message", "hint"),
    [
        (
            "megatron-deepspeed",
            "--log-intervall, 1",
            "--log-i",
            "no option",
            "did you mean `--log-interval`?",
        ),
        ("megatron-deepspeed", "--lr, abc", "--lr", "`--lr abc` is not legal", "a number"),
        ("megatron-deepspeed", "--num-workers, 2.5", "--num-w", "is not legal", "a whole number"),
        (
            "megatron-lm",
            "--lr-decay-style, sine",
            "--lr-d",
            "is not legal",
            "one of constant, linear, cosine",
        ),
        ("megatron-lm", "--bf16, yes", "--bf16", "takes no value", "alone"),
        ("megatron-lm", "--seed", "--seed", "has 0 values, it takes 1", "a whole number"),
        (
            "megatron-deepspeed",
            "--micro-batch-size, 4",
            "--micro",
            "contradicts `batch.micro`",
            "`batch.micro`",
        ),
        ("megatron-deepspeed", "--zero-stage, 3", "--zero", "contradicts `parallel.zero`", "`parallel.zero`"),
        ("megatron-lm", "--bf16", "--bf16", "contradicts `train.precision`", "`train.precision`"),
        ("megatron-lm", "--train-samples, 10", "--train-s", "what `train.steps` says", "`train.steps`"),
        ("megatron-lm", "stray", "stray", "belongs to no option", "options alone"),
        ("gpt-neox", "--x", "--x", "sets no key", "KEY=VALUE"),
        ("gpt-neox", "log_intervall=5", "log_i", "no key `log_intervall`", "did you mean `log_interval`?"),
        (
            "gpt-neox",
            "train_iters=7",
            "train_i",
            "`train_iters=7` contradicts `train.steps`",
            "`train.steps`",
        ),
        ("gpt-neox", "keep_last_n_checkpoints=2.5", "keep_l", "is not legal", "a whole number"),
        ("gpt-neox", "finetune=1", "finetune", "`finetune=1` is not legal", "true or false"),
        ("gpt-neox", "attention_config=flash", "attention_c", "is not legal", "a list in JSON"),
        ("gpt-neox", "train_impl=ppo", "train_impl", "is not legal", "one of normal, dpo"),
        ("gpt-neox", "zero_optimization.stage=3", "zero_o", "contradicts `parallel.zero`", "`parallel.zero`"),
        (
            "gpt-neox",
            '\'optimizer={"params": {"lr": 0.5}}\'',
            "'optimizer",
            "`optimizer.params.lr=0.5` contradicts `optimizer.lr`",
            "`optimizer.lr`",
        ),
        (
            "gpt-neox",
            "zero_optimization.overlap_com=true",
            "zero_o",
            "no key",
            "did you mean `zero_optimization.overlap_comm`?",
        ),
        ("gpt-neox", "zero_optimization.overlap_comm=yes", "zero_o", "is not legal", "true or false"),
        ("gpt-neox", "rank=0", "rank", "works out itself", "remove it"),
        ("gpt-neox", "train_epochs=2", "train_e", "what `train.steps` says", "`train.steps`"),
        ("gpt-neox", "scheduler.type=OneCycle", "sched", "what `optimizer.lr_schedule` says", "optimizer."),
    ],
)
def test_what_is_passed_on_is_checked_where_it_stands(tmp_path, flavour, words, at, message, hint):
    (fault,) = [one for one in found(tmp_path, flavour, words) if one.code == "DSF143"]
    text = (tmp_path / "recipe.yaml").read_text()
    assert message in fault.message
    assert hint in (fault.hint or "")
    assert fault.place is not None
    assert (fault.place.line, fault.place.column) == (11, text.splitlines()[10].index(at) + 1)


def test_words_behind_two_dashes_have_their_own_place(tmp_path):
    behind = ("--log-interval", "2", "--micro-batch-size", "4", "--log-interval", "3")
    twice, contradiction = sorted(
        (one for one in found(tmp_path, "megatron-lm", "", *behind)),
        key=lambda one: str(one.place),
        reverse=True,
    )
    assert str(contradiction.place) == "argument 3 after --"
    assert str(twice.place) == "argument 5 after --"
    assert "repeats" in twice.message


def test_words_for_a_configuration_are_merged_into_it(tmp_path):
    words = (
        '"log_interval=7", "zero_optimization={\\"overlap_comm\\": true, \\"stage\\": 1}", "train_iters=30"'
    )
    recipe = write(tmp_path, RECIPE.replace("FLAVOUR", "gpt-neox").replace("WORDS", words))
    hostile = 'it\'s $HOME; `x` "quoted" = {"a": 1}'
    made = make_plan(load_recipe(recipe, (), None, [f"wandb_group={hostile}"])).external
    assert made.arguments == ()
    assert (made.configuration["log_interval"], made.configuration["wandb_group"]) == (7, hostile)
    assert made.configuration["zero_optimization"] == {"overlap_comm": True, "stage": 1}
    assert made.configuration["train_iters"] == 30


def test_an_equal_value_is_no_contradiction_and_stands_once(tmp_path):
    recipe = write(tmp_path, RECIPE.replace("FLAVOUR", "megatron-lm").replace("WORDS", "--lr, 3e-4"))
    words = [word.text for word in make_plan(load_recipe(recipe)).external.arguments]
    assert words.count("--lr") == 1


def test_words_for_no_program_are_refused(tmp_path):
    with pytest.raises(DsforgeError) as caught:
        load_recipe(write(tmp_path), (), None, ["--log-interval", "1"])
    assert caught.value.code == "DSF026"
    assert str(caught.value.place) == "argument 1 after --"


@pytest.mark.parametrize(
    ("flavour", "change", "key"),
    [
        ("megatron-deepspeed", {"batch": {"micro": 2}}, "batch.micro"),
        ("megatron-deepspeed", {"model": {"arch": "llama"}}, "model"),
        ("megatron-deepspeed", {"model": {"kv_heads": 2}}, "model"),
        ("megatron-deepspeed", {"train": {"seed": 0}}, "train.seed"),
        (
            "megatron-deepspeed",
            {"train": {"recompute": "full", "recompute_every": 2}},
            "train.recompute_every",
        ),
        ("megatron-lm", {"parallel": {"pp": 1, "dp": 4, "zero": 2}}, "parallel.zero"),
        (
            "megatron-lm",
            {"parallel": {"tp": 2, "dp": 2, "pp": 1, "sequence_parallel": True}},
            "parallel.sequence_parallel",
        ),
        ("megatron-lm", {"parallel": {"cp": 2, "dp": 1}}, "parallel.cp"),
        ("gpt-neox", {"data": {"train": [[1.0, "a"]]}}, "data"),
        ("gpt-neox", {"parallel": {"tp": 2, "pp": 1, "dp": 2, "zero": 2}}, "parallel.zero"),
        ("gpt-neox", {"train": {"seed": 0}}, "train.seed"),
        ("gpt-neox", {"model": {"arch": "llama", "rope_theta": 10000.5}}, "model"),
        ("gpt-neox", {"optimizer": {"lr_schedule": "linear", "min_lr": 1e-5}}, "optimizer.min_lr"),
    ],
)
def test_a_known_failure_is_refused_before_launch(flavour, change, key):
    faults = [one for one in examine(external(flavour, change)) if one.code == "DSF144"]
    assert key in [one.key for one in faults]
    assert all(one.hint for one in faults)
    assert not [one for one in examine(external(flavour)) if one.code == "DSF144"]


def test_flash_attention_lifts_the_limit_on_micro_batches():
    bf16 = {"cluster": {"gpu": "h100-sxm-80gb"}, "train": {"precision": "bf16"}}
    words = ["--use-flash-attn-v2"]
    recipe = external("megatron-deepspeed", bf16, {"batch": {"micro": 2}}, arguments=words)
    assert not [one for one in examine(recipe) if one.code == "DSF144"]


GPU = {"cluster": {"gpu": "h100-sxm-80gb"}}
FULL = {"train": {"recompute": "full"}}
NO_PP = {"parallel": {"pp": 1, "dp": 4}}


@pytest.mark.parametrize(
    ("words", "changes", "why"),
    [
        ("--use-flash-attn-v2", {}, "needs a GPU"),
        ("--use-flash-attn-v1", GPU, "16 bits alone"),
        ("", {"train": {"precision": "fp16"}}, "fp16 on few CPUs"),
        ("", NO_PP | {"train": FULL["train"] | {"recompute_every": 3}}, "IndexError"),
        ("--transformer-impl transformer_engine", {}, "Transformer Engine needs a GPU"),
        ("--distribute-saved-activations", FULL, "--recompute-granularity full"),
        ("--distribute-checkpointed-activations", {}, "computed again"),
        ("--fp32-residual-connection", {}, "16 bits alone"),
        ("--fp16-lm-cross-entropy", {}, "fp16 alone"),
        ("--no-contiguous-buffers-in-local-ddp", {"train": {"precision": "bf16"}}, "contiguous buffers"),
        ("--DDP-impl torch", {}, "stages need the local DDP"),
        ("--enable-zbh1-pipeline", NO_PP, "there is none"),
        ("--enable-zbh1-exact-semantics", {}, "goes with `--enable-zbh1-pipeline`"),
        ("--log-params-norm", {}, "ask CUDA"),
    ],
)
def test_what_megatron_deepspeed_asserts_without_a_message_has_one(words, changes, why):
    recipe = external("megatron-deepspeed", changes, arguments=words.split())
    faults = [one for one in examine(recipe) if one.code == "DSF144"]
    assert [one for one in faults if why in one.message], [one.message for one in faults]


def test_a_key_that_no_program_takes_is_refused():
    (fault,) = [
        one
        for one in examine(external("megatron-deepspeed", {"parallel": {"sequence_parallel": True}}))
        if one.code == "DSF140"
    ]
    assert fault.key == "parallel.sequence_parallel"
    (fault,) = [
        one for one in examine(external("megatron-lm", {"checkpoint": {"keep": 2}})) if one.code == "DSF140"
    ]
    assert fault.key == "checkpoint.keep"


def test_a_script_is_handed_what_it_asks_for_and_nothing_set_is_lost(tmp_path):
    words = '"--batch={batch.micro}", "{train.steps}", "{checkpoints}", \'{"a": 1}\''
    text = RECIPE.replace("FLAVOUR", "script").replace("WORDS", words).replace("pp: 2, zero: 1", "")
    recipe = write(tmp_path, text.replace("path: checkout", "path: checkout\n  entry: train.py"))
    (lost,) = examine(load_recipe(recipe))
    assert (lost.code, lost.key) == ("DSF145", "train.precision")
    made = make_plan(load_recipe(write(tmp_path, recipe.read_text().replace(", precision: fp32", ""))))
    assert [(word.text, word.base) for word in made.external.arguments] == [
        ("--batch=1", None),
        ("30", None),
        (".", "checkpoints"),
        ('{"a": 1}', None),
    ]


def test_a_script_that_asks_for_what_is_not_there(tmp_path):
    words = '"{batch.mirco}", "--c={ds_config}"'
    wrong = found(tmp_path, "script", words)
    near, inside = [one for one in wrong if one.code == "DSF143"]
    assert "did you mean `{batch.micro}`?" in near.hint
    assert "an argument of its own" in inside.hint


SCRIPT = RECIPE.replace("FLAVOUR", "script\n  entry: train.py").replace("pp: 2, zero: 1", "")


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("{checkpoint}", "names nothing", "did you mean `{checkpoints}`?"),
        ("--micro={micro}", "names nothing", "did you mean `{batch.micro}`?"),
        ("{model}", "names nothing", "did you mean `{model."),
        ("{TRAIN.STEPS}", "names nothing", "did you mean `{train.steps}`?"),
        ("{epoch}-x", "names nothing", "write `{{epoch}}` for the text `{epoch}`"),
        ("{train.steps:>5}", "no form of the place", "write `{train.steps}`"),
        ("{{train.steps}}", "no form of the place", "write `{train.steps}`"),
        ("{{checkpoints}}", "no form of the place", "write `{checkpoints}`"),
        ("{data.tokenizer}", "has no value in this recipe", "set `data.tokenizer`"),
        ("{data.train}", "has no value in this recipe", "set `data.train`"),
        ("{train.tokens}", "has no value in this recipe", "set `train.tokens`"),
    ],
)
def test_a_place_that_is_none_is_refused_where_it_stands(tmp_path, word: str, message: str, hint: str):
    text = SCRIPT.replace("WORDS", f"--x, '{word}'").replace(", precision: fp32", "")
    (fault,) = [one for one in examine(load_recipe(write(tmp_path, text))) if one.code == "DSF143"]
    assert message in fault.message
    assert hint in str(fault.hint)
    assert (fault.key, fault.place.line, fault.place.column) == ("external.arguments.1", 12, 20)


def test_what_a_script_is_handed_is_text_and_lists_and_numbers_as_written(tmp_path):
    words = "'{optimizer.betas}', '{{epoch}}', '{a: 1}', '$${HOME}', 1.10, 0012, 1e-4, -3"
    text = SCRIPT.replace("WORDS", words).replace("micro: 1, ", "")
    text = text.replace("train: {steps: 30, precision: fp32}\n", "")
    made = make_plan(load_recipe(write(tmp_path, text)))
    assert [word.text for word in made.external.arguments] == [
        *("0.9,0.95", "{epoch}", "{a: 1}", "${HOME}", "1.10", "0012", "1e-4", "-3")
    ]
    path = write(tmp_path, text)
    given = make_plan(load_recipe(path, ("external.arguments=[--id, 007]",)))
    assert [word.text for word in given.external.arguments] == ["--id", "007"]
    with pytest.raises(DsforgeError) as caught:
        load_recipe(write(tmp_path, text.replace(words, "&tag 1.10, *tag")))
    assert caught.value.place is not None
    assert (caught.value.place.line, caught.value.place.column) == (11, 15)
    assert "quotes" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("entry", "/etc/passwd", "is no file in the folder of external.path"),
        ("entry", "../x.py", "is no file in the folder of external.path"),
        ("entry", "a/../../x.py", "is no file in the folder of external.path"),
        ("entry", "a/..", "is no file in the folder of external.path"),
        ("entry", "--version", "write `./--version`"),
        ("path", "-c", "write `./-c`"),
    ],
)
def test_a_program_outside_of_its_folder_is_refused(tmp_path, key: str, value: str, says: str):
    with pytest.raises(DsforgeError) as caught:
        load_recipe(write(tmp_path, SCRIPT.replace("WORDS", "--x")), (f"external.{key}={value}",))
    assert says in caught.value.message
    loaded = load_recipe(write(tmp_path, SCRIPT.replace("WORDS", "--x")), ("external.entry=./a/b.py",))
    assert loaded.recipe.external.entry == "./a/b.py"


def test_words_of_a_recipe_whose_program_is_not_named_or_whose_arguments_are_no_list(tmp_path):
    text = SCRIPT.replace("WORDS", "--x")
    lone = text.partition("external:\n")[0] + "external: null\n"
    assert [one.code for one in examine(load_recipe(write(tmp_path, lone)))] == ["DSF142"]
    with pytest.raises(DsforgeError) as caught:
        load_recipe(write(tmp_path, text.replace("[--x]", "--x")))
    assert caught.value.hint == "it should be a list"


def test_a_program_without_trainer_and_a_trainer_without_program():
    (lone,) = [one for one in examine(loaded({"trainer": "external"})) if one.code == "DSF142"]
    assert lone.key == "trainer"
    (idle,) = [one for one in examine(external("megatron-lm", {"trainer": "forge"})) if one.code == "DSF142"]
    assert (idle.key, str(idle.fix)) == ("external", "trainer=external")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"train": {"precision": "bf16"}, "parallel": {"pp": 1, "dp": 4, "zero": 0}}, "DSF122"),
        ({"train": {"precision": "fp32"}, "parallel": {"pp": 2, "dp": 2, "zero": 0}}, "DSF121"),
    ],
)
def test_faults_of_deepspeed_are_no_faults_of_megatron_lm(changes, code):
    codes = {
        flavour: [one.code for one in examine(external(flavour, changes))]
        for flavour in ("megatron-deepspeed", "megatron-lm")
    }
    assert code in codes["megatron-deepspeed"]
    assert codes["megatron-lm"] == []


def test_tensor_parallel_ranks_of_megatron_lm_get_the_variable_its_parser_asks_for():
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    tp = {"parallel": {"tp": 2, "pp": 1, "dp": 4}}
    assert make_plan(external("megatron-lm", tp)).launch.env[name] == "1"
    alone = {"parallel": {"tp": 1, "pp": 2, "dp": 4}}
    assert name not in make_plan(external("megatron-lm", alone)).launch.env
    assert name not in make_plan(external("megatron-deepspeed", tp)).launch.env
