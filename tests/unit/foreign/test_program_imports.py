"""Realistic scripts and configurations of external programs become recipes with the right plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError, Severity
from dsforge.foreign.text import Kind, kind_of
from dsforge.ops.foreign_check import check_foreign
from dsforge.ops.foreign_init import Imported, Wanted, import_recipe
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe
from tests.support.recipes import ROOT

FOREIGN = ROOT / "tests/data/foreign"


def imported(name: str, *changes: str, more: tuple[str, ...] = (), gpus: int | None = None) -> Imported:
    path = FOREIGN / name
    wanted = Wanted(
        gpu="a100-sxm-80gb", gpus=gpus, changes=changes, more=tuple(FOREIGN / one for one in more)
    )
    return import_recipe(path, kind_of(path), wanted)


def plan(made: Imported) -> Plan:
    return make_plan(load_recipe(Path("made.yaml"), text=made.text))


def degrees(found: Plan) -> tuple[int, int, int, int]:
    return (found.layout.tp, found.layout.pp, found.layout.dp, found.layout.zero)


def batch(found: Plan) -> tuple[int, int, int, int]:
    one = found.batch
    return (one.global_size, one.micro, one.accumulation_steps, one.seq_len)


def arguments(found: Plan) -> list[str]:
    assert found.external is not None
    return [word.text for word in found.external.arguments]


def left(made: Imported) -> set[str]:
    return {one.key for one in made.left}


def test_megatron_deepspeed_with_its_json_in_the_script():
    made = imported("mds_gpt_1.3b.sh")
    found = plan(made)
    assert degrees(found) == (2, 2, 4, 1)
    assert batch(found) == (256, 1, 64, 2048)
    assert (found.model.layers, found.model.hidden, found.model.heads, found.model.vocab) == (
        24,
        2048,
        16,
        50257,
    )
    assert (found.train.steps, found.train.precision, found.train.recompute) == (128000, "bf16", "full")
    optimizer = found.optimizer
    assert (optimizer.lr, optimizer.min_lr, optimizer.warmup_steps) == (2e-4, 2e-5, 1500)
    assert [(one.weight, one.prefix) for one in found.data.train] == [
        (0.7, "/data/pile_text_document"),
        (0.3, "/data/books_text_document"),
    ]
    assert (found.checkpoint.dir, found.checkpoint.resume) == ("/ckpt/gpt_1.3B", "auto")
    assert found.launch.env["NCCL_IB_TIMEOUT"] == "22"
    assert arguments(found)[-2:] == ["--log-interval", "10"]
    assert left(made) >= {"--init-method-std", "--tokenizer-type", "--split", "--eval-interval"}


def test_megatron_deepspeed_with_zero_3_and_samples():
    made = imported("mds_zero3_350m.sh")
    found = plan(made)
    assert degrees(found) == (1, 1, 8, 3)
    assert batch(found) == (32, 1, 4, 1024)
    # 3,200,000 samples of which 32,000 warm up, 32 a step; the null tokenizer adds a token to 50,256.
    assert (found.train.steps, found.optimizer.warmup_steps, found.model.vocab) == (100_000, 1000, 50257)
    assert (found.train.precision, found.train.seed, found.optimizer.grad_clip) == ("fp16", 42, 0.5)
    assert (found.train.eval_every, found.train.eval_samples) == (500, 640)
    assert [(one.weight, one.prefix) for one in found.data.valid] == [(1.0, "/d/valid"), (3.0, "/d/valid2")]
    # What the script leaves to the program's defaults is what the run has.
    assert (found.optimizer.betas, found.train.dropout) == ((0.9, 0.999), 0.1)
    assert "--no-pipeline-parallel" in arguments(found)
    assert left(made) == {"${GPUS:-8}", "zero_optimization.overlap_comm", "fp16.initial_scale_power"}


def test_megatron_deepspeed_with_its_json_beside_it_and_open_words():
    with pytest.raises(DsforgeError) as caught:
        imported("mds_template.sh")
    assert (caught.value.code, caught.value.findings) == ("DSF690", ())
    assert str(caught.value.place).endswith("mds_template.sh:11:13")
    made = imported("mds_template.sh", "data.train=/data/mine")
    found = plan(made)
    assert degrees(found) == (1, 4, 4, 1)
    assert batch(found) == (64, 1, 16, 2048)
    assert (found.model.ffn_hidden, found.optimizer.warmup_steps) == (16384, 10)
    assert found.hostfile == "hostfiles/a100x8.txt"
    assert "--use-flash-attn-v2" in arguments(found)
    assert found.external is not None
    assert found.external.path == "/opt/Megatron-DeepSpeed"
    assert {"$EXTRA", "for i in 1 2 3; do"} <= left(made)


def test_megatron_lm_of_175b():
    made = imported("mlm_gpt3_175b.sh", "model.vocab=50257", "data.train=/data/mine")
    found = plan(made)
    assert degrees(found) == (8, 16, 8, 0)
    assert batch(found) == (1536, 1, 192, 2048)
    assert (found.model.layers, found.model.hidden, found.model.head_dim) == (96, 12288, 128)
    # A thousandth of the 430,000 steps of the decay, which goes on to the last of 500,000 in a recipe.
    assert (found.optimizer.warmup_steps, found.train.steps) == (430, 500_000)
    assert {"--lr-decay-iters", "--init-method-std", "--save", "--load", "--split"} <= left(made)
    assert arguments(found)[-4:] == ["--attention-backend", "auto", "--log-interval", "100"]
    assert found.sinks == ("tensorboard",)


def test_megatron_lm_of_llama_3():
    made = imported("mlm_llama3_8b.sh")
    found = plan(made)
    assert degrees(found) == (4, 2, 2, 1)
    assert batch(found) == (128, 1, 64, 8192)
    model = found.model
    assert (model.arch, model.kv_heads, model.ffn_hidden, model.rope_theta) == ("llama", 8, 14336, 500000.0)
    assert (model.tied, model.vocab, model.norm_eps) == (False, 128256, 1e-5)
    assert found.parameters.total == 8_030_261_248
    assert found.train.recompute == "selective"
    assert "--sequence-parallel" in arguments(found)
    assert found.launch.collective_timeout_seconds == 3600
    assert arguments(found)[-2:] == ["--use-mcore-models", "--overlap-grad-reduce"]
    assert found.data.train == ()
    assert made.left == ()


def test_megatron_lm_with_virtual_stages():
    found = plan(imported("mlm_interleaved.sh"))
    assert degrees(found) == (2, 4, 2, 0)
    assert found.layout.schedule == "interleaved"
    words = arguments(found)
    assert words[words.index("--num-layers-per-virtual-pipeline-stage") + 1] == "2"
    assert batch(found) == (128, 2, 32, 2048)
    assert [(one.weight, one.prefix) for one in found.data.train] == [(2.0, "/data/web"), (1.0, "/data/code")]
    assert (found.train.recompute, found.optimizer.lr_schedule) == ("full", "linear")
    assert found.launch.env["OMP_NUM_THREADS"] == "4"
    assert arguments(found)[-1] == "--attention-softmax-in-fp32"


def test_a_job_for_slurm():
    made = imported("job.sbatch")
    found = plan(made)
    assert degrees(found) == (1, 1, 16, 1)
    assert (found.layout.world_size, found.layout.gpus_per_node) == (16, 4)
    assert batch(found) == (256, 2, 8, 4096)
    assert found.launch.launcher == "slurm"
    assert found.launch.slurm is not None
    assert found.launch.slurm.time_seconds == 86_400
    assert found.external is not None
    assert found.external.path == "Megatron-LM"
    assert left(made) == {"HF_TOKEN", "--job-name"}
    assert "hf_not_a_real_one" not in made.text


def test_accelerates_launcher_counts_all_ranks():
    found = plan(imported("accelerate_launch.sh"))
    assert (found.layout.world_size, found.layout.gpus_per_node) == (8, 4)
    assert batch(found) == (64, 4, 2, 1024)
    assert [one.prefix for one in found.data.train] == ["my data/corpus"]
    assert (found.train.precision, found.optimizer.lr_schedule) == ("fp32", "constant")


def test_gpt_neox_in_two_files():
    made = imported(
        "neox_125m.yml", "model.vocab=50277", "external.path=/src/gpt-neox", more=("neox_local.yml",), gpus=8
    )
    found = plan(made)
    assert degrees(found) == (1, 1, 8, 1)
    assert batch(found) == (128, 4, 4, 2048)
    assert (found.train.precision, found.train.steps, found.train.recompute) == ("fp16", 320_000, "full")
    assert (found.optimizer.lr, found.optimizer.warmup_steps, found.optimizer.betas) == (
        6e-4,
        3200,
        (0.9, 0.95),
    )
    assert (found.checkpoint.every_steps, found.checkpoint.keep) == (10_000, 4)
    assert found.data.tokenizer == "data/20B_tokenizer.json"
    assert found.external is not None
    assert found.external.configuration is not None
    # One stage as a pipeline is what the file asks for; the recipe's run builds a plain module.
    configuration = found.external.configuration
    assert configuration["pipe_parallel_size"] == 0
    # What no key of a recipe says is passed on.
    assert (configuration["init_method"], configuration["partition_activations"]) == ("small_init", True)
    assert configuration["zero_optimization"] == {
        "stage": 1,
        "allgather_partitions": True,
        "allgather_bucket_size": 500_000_000,
        "overlap_comm": True,
        "reduce_scatter": True,
        "reduce_bucket_size": 500_000_000,
        "contiguous_gradients": True,
    }
    scaling = {"loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1}
    assert configuration["fp16"] == {"enabled": True, **scaling}
    assert {"split", "log_interval", "log_dir"} <= left(made)
    (stages,) = [one for one in made.left if one.key == "pipe_parallel_size"]
    assert (stages.value, configuration["pipe_parallel_size"]) == ("1", 0)
    assert "checkpoints are other files" in stages.why


def test_gpt_neox_flat():
    made = imported("neox_llama.yml", "model.vocab=32000", "external.path=/src/gpt-neox")
    found = plan(made)
    assert degrees(found) == (2, 2, 4, 1)
    assert (found.layout.world_size, found.layout.gpus_per_node) == (16, 8)
    assert batch(found) == (256, 4, 16, 4096)
    model = found.model
    assert (model.arch, model.kv_heads, model.ffn_hidden, model.norm_eps) == ("llama", 8, 11008, 1e-6)
    assert (found.train.precision, found.optimizer.warmup_steps, found.optimizer.eps) == ("bf16", 500, 1e-8)
    assert [(one.weight, one.prefix) for one in found.data.train] == [(0.8, "/d/a"), (0.2, "/d/b")]
    assert (found.train.eval_every, found.train.eval_samples) == (1000, 5120)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("job.sbatch", Kind.MEGATRON),
        ("mlm_llama3_8b.sh", Kind.MEGATRON),
        ("neox_125m.yml", Kind.NEOX),
        ("neox_local.yml", Kind.NEOX),
        ("neox_llama.yml", Kind.NEOX),
    ],
)
def test_kinds_are_told_apart(name: str, kind: Kind):
    assert kind_of(FOREIGN / name) is kind


def test_a_flavour_that_is_forced(tmp_path: Path):
    script = tmp_path / "run.sh"
    script.write_text(
        "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 "
        "--seq-length 8 --max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 2 "
        "--train-iters 3 --lr 1e-4 --tokenizer-type NullTokenizer --vocab-size 31 "
        "--eval-iters 0 --data-path /d\n"
    )
    sizes = {}
    for flavour in ("megatron-lm", "megatron-deepspeed"):
        made = import_recipe(script, Kind.MEGATRON, Wanted(gpu="a100-sxm-80gb", flavour=flavour))
        found = plan(made)
        assert found.external is not None
        assert found.external.flavour == flavour
        sizes[flavour] = found.model.vocab
    assert sizes == {"megatron-lm": 31, "megatron-deepspeed": 32}


def test_another_tp_for_a_loaded_checkpoint_keeps_its_rows(tmp_path: Path):
    script = tmp_path / "run.sh"
    script.write_text(
        "torchrun --nproc_per_node 8 src/pretrain_gpt.py --num-layers 2 --hidden-size 64 "
        "--num-attention-heads 8 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 "
        "--global-batch-size 8 --lr 1e-4 --train-iters 10 --tokenizer-type GPT2BPETokenizer --bf16 \\\n"
        "  --use-distributed-optimizer --data-path d --save out --save-interval 5 \\\n  --load out\n",
        "utf-8",
    )
    given = ("data.tokenizer=t.json", "parallel.tp=8")
    with pytest.raises(DsforgeError) as caught:
        import_recipe(script, Kind.MEGATRON, Wanted(gpu="a100-sxm-80gb", changes=given))
    assert caught.value.code == "DSF698"
    assert str(caught.value.place) == f"{script}:3:3"
    assert "50304 rows under TP 1; under TP 8 the program pads it to 51200" in caught.value.message
    assert "--make-vocab-size-divisible-by 16" in (caught.value.hint or "")
    kept = (*given, 'external.arguments=[--make-vocab-size-divisible-by, "16"]')
    text = import_recipe(script, Kind.MEGATRON, Wanted(gpu="a100-sxm-80gb", changes=kept)).text
    assert "tp: 8" in text


def test_a_job_with_arrays_a_function_and_a_length_in_samples():
    made = plan(imported("mlm_mixed.sbatch"))
    layout, batch = made.layout, made.batch
    assert (layout.tp, layout.pp, layout.dp, layout.world_size) == (2, 2, 8, 32)
    assert (batch.global_size, batch.micro, batch.accumulation_steps) == (512, 1, 64)
    assert (made.train.steps, made.optimizer.warmup_steps, made.optimizer.min_lr) == (50_000, 1_000, 3e-5)
    assert [(one.weight, one.prefix) for one in made.data.train] == [
        (0.7, "/lustre/data/web_text_document"),
        (0.3, "/lustre/data/code_text_document"),
    ]
    assert (made.model.arch, made.model.ffn_hidden, made.model.tied) == ("llama", 11008, False)


def test_a_configuration_that_a_function_writes_and_a_loop_that_starts_again():
    with pytest.raises(DsforgeError, match=r"`model\.vocab` must be given"):
        imported("mds_function.sh")
    made = plan(imported("mds_function.sh", "model.vocab=50257"))
    assert (made.layout.pp, made.layout.dp, made.layout.zero) == (2, 4, 1)
    assert (made.batch.global_size, made.batch.accumulation_steps, made.train.precision) == (64, 16, "bf16")
    assert (made.optimizer.warmup_steps, made.optimizer.grad_clip) == (500, 1.0)


def test_a_gated_model_of_two_neox_files():
    changes = ("external.path=gpt-neox", "model.vocab=50304")
    made = plan(imported("neox_1b.yml", *changes, more=("neox_1b_setup.yml",)))
    assert (made.layout.tp, made.layout.pp, made.layout.dp) == (2, 1, 8)
    assert (made.batch.global_size, made.batch.micro, made.batch.accumulation_steps) == (256, 4, 8)
    assert (made.model.arch, made.model.ffn_hidden, made.optimizer.warmup_steps) == ("llama", 5632, 1430)
    assert (made.train.recompute, made.checkpoint.every_steps) == ("full", 5000)


@pytest.mark.parametrize(
    "name", ["mlm_mixed.sbatch", "mds_function.sh", "neox_1b.yml", "accelerate_fsdp2.yaml"]
)
def test_what_trains_has_no_errors(name: str):
    path = FOREIGN / name
    findings = check_foreign(path, kind_of(path), None).findings
    assert [one.message for one in findings if one.severity is not Severity.NOTE] == []


LAST = "--use-mcore-models"


def lengthened(tmp_path: Path, words: str) -> Imported:
    """Return the import of a script that has more options."""
    text = (FOREIGN / "mlm_llama3_8b.sh").read_text()
    assert text.count(LAST) == 1
    path = tmp_path / "longer.sh"
    path.write_text(text.replace(LAST, f"{LAST} {words}"))
    return import_recipe(path, kind_of(path), Wanted(gpu="a100-sxm-80gb"))


@pytest.mark.parametrize("words", ["--num-experts 8", "--squared-relu", "--window-size 128,0", "--spec a b"])
def test_a_script_of_another_model_makes_no_dense_recipe(tmp_path: Path, words: str):
    with pytest.raises(DsforgeError) as caught:
        lengthened(tmp_path, words)
    assert (caught.value.code, words.split(maxsplit=1)[0] in caught.value.message) == ("DSF691", True)
    assert caught.value.place is not None


def test_what_makes_another_run_is_listed_and_not_passed_on(tmp_path: Path):
    words = "--exit-interval 5 --finetune --dataloader-type cyclic --decoupled-lr 1e-3"
    made = lengthened(tmp_path, f"{words} --manual-gc")
    assert {word for word in words.split() if word.startswith("--")} <= left(made)
    passed = arguments(plan(made))
    assert not [word for word in words.split() if word.startswith("--") and word in passed]
    assert "--manual-gc" in passed


def test_an_option_that_is_not_there_makes_no_recipe(tmp_path: Path):
    with pytest.raises(DsforgeError) as caught:
        lengthened(tmp_path, "--log-intervall 5")
    assert caught.value.code == "DSF695"
    assert "did you mean `--log-interval`?" in str(caught.value.hint)
