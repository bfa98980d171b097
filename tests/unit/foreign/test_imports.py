"""Realistic files of other tools become recipes with the right plan; the rest is listed or asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.foreign.text import Kind, kind_of
from dsforge.ops.foreign_init import Imported, Wanted, import_recipe
from dsforge.plan.resolve import make_plan
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe
from tests.support.recipes import ROOT

FOREIGN = ROOT / "tests/data/foreign"
A100 = {"model": "gpt2", "gpu": "a100-sxm-80gb", "seq_len": 1024}


def imported(name: str, *changes: str, gpus: int | None = 8, **options: object) -> Imported:
    path = FOREIGN / name
    kind = Kind.ACCELERATE if path.suffix == ".yaml" else Kind.DEEPSPEED
    return import_recipe(path, kind, Wanted(**{**A100, "gpus": gpus, "changes": changes, **options}))


def plan(made: Imported) -> Plan:
    return make_plan(load_recipe(Path("made.yaml"), text=made.text))


def refused(name: str, *changes: str, **options: object) -> list[tuple[str, str, str]]:
    with pytest.raises(DsforgeError) as caught:
        imported(name, *changes, **options)  # type: ignore[arg-type]  # options of Wanted
    fault = caught.value
    rows = [(fault.code, str(fault.place), fault.hint or "")]
    return rows + [(one.code, str(one.place), one.hint or "") for one in fault.findings]


def left(made: Imported) -> set[str]:
    return {one.key for one in made.left}


def test_a_megatron_pipeline_file():
    made = imported("megatron_pipeline.json")
    plan_ = plan(made)
    assert (plan_.batch.global_size, plan_.batch.micro, plan_.batch.accumulation_steps) == (512, 2, 32)
    assert (plan_.layout.zero, plan_.layout.dp, plan_.train.precision) == (1, 8, "bf16")
    optimizer = plan_.optimizer
    assert (optimizer.lr, optimizer.betas, optimizer.weight_decay) == (3e-4, (0.9, 0.95), 0.1)
    assert optimizer.lr_schedule == "constant"
    # The sums of gradients are in fp32 under ZeRO-1 anyway: nothing to report.
    assert left(made) == {"scheduler", "steps_per_print", "wall_clock_breakdown"}


def test_another_layout_than_the_file_is_for_is_refused():
    rows = refused("megatron_pipeline.json", gpus=16)
    assert rows[0][0] == "DSF620"
    assert rows[0][1].endswith("megatron_pipeline.json:2:3")


def test_what_the_trainer_fills_in_is_asked_for_and_taken():
    rows = refused("hf_zero3_auto.json")
    assert {code for code, _, _ in rows} == {"DSF690"}
    asked = {hint.split("=")[0].removeprefix("add ") for _, _, hint in rows}
    assert asked == {
        "batch.global", "train.precision", "train.steps", "optimizer.grad_clip", "optimizer.lr",
        "optimizer.weight_decay", "optimizer.betas", "optimizer.eps", "optimizer.warmup_steps",
    }  # fmt: skip
    values = (
        "batch.global=64", "train.precision=bf16", "train.steps=900", "optimizer.grad_clip=1.0",
        "optimizer.lr=2e-5", "optimizer.weight_decay=0", "optimizer.betas=[0.9,0.999]", "optimizer.eps=1e-8",
        "optimizer.warmup_steps=30",
    )  # fmt: skip
    plan_ = plan(imported("hf_zero3_auto.json", *values))
    assert (plan_.layout.zero, plan_.batch.global_size, plan_.train.steps) == (3, 64, 900)
    assert (plan_.optimizer.lr, plan_.optimizer.lr_schedule, plan_.optimizer.warmup_steps) == (
        2e-5,
        "linear",
        30,
    )


def test_a_heredoc_template():
    assert {hint for _, _, hint in refused("megatron_template.json")} == {
        "add batch.global=VALUE after the options",
        "add batch.micro=VALUE after the options",
        "add parallel.zero=VALUE after the options",
    }
    plan_ = plan(imported("megatron_template.json", "batch.global=64", "batch.micro=2", "parallel.zero=1"))
    assert (plan_.batch.global_size, plan_.batch.micro, plan_.layout.zero) == (64, 2, 1)


def test_a_large_pipeline_with_its_layout_given():
    made = imported("bloom_like.json", "parallel.tp=4", "parallel.pp=4", gpus=64, model="13B")
    plan_ = plan(made)
    assert (plan_.layout.tp, plan_.layout.pp, plan_.layout.dp, plan_.layout.zero) == (4, 4, 4, 0)
    assert (plan_.batch.micro, plan_.batch.accumulation_steps) == (2, 256)


def test_a_scheduler_and_the_library_s_own_defaults():
    made = imported("fp32_zero2.json", gpus=4)
    plan_ = plan(made)
    assert (plan_.batch.global_size, plan_.batch.micro, plan_.batch.accumulation_steps) == (64, 4, 4)
    assert (plan_.layout.zero, plan_.train.precision, plan_.train.steps) == (2, "fp32", 20000)
    optimizer = plan_.optimizer
    assert (optimizer.lr_schedule, optimizer.warmup_steps, optimizer.min_lr) == ("cosine", 500, 1.5e-5)
    # What the file leaves out is the engine's default, not the recipe's.
    assert (optimizer.weight_decay, optimizer.grad_clip, optimizer.eps) == (0.0, 1.0, 1e-8)
    assert "#   optimizer.weight_decay: 0.0 - the default of Adam" in made.text
    assert "tensorboard.output_path" in left(made)


def test_offload_is_carried_or_refused_never_dropped():
    rows = refused("offload_zero3.json", "train.steps=1000", "trainer=megatron-core", gpus=4)
    places = {place.partition(".json:")[2] for code, place, _ in rows if code == "DSF140"}
    assert places >= {"9:27", "10:23"}
    made = imported("offload_zero3.json", "train.steps=1000", gpus=4)
    plan_ = plan(made)
    assert (plan_.offload.optimizer, plan_.offload.parameters) == ("cpu", "cpu")
    # micro 4 x accumulation 2 x DP 4, and the scheduler's peak rate wins over the optimizer's.
    assert (plan_.batch.global_size, plan_.optimizer.lr, plan_.layout.zero) == (32, 2e-5, 3)
    assert "scheduler.params.warmup_type" in left(made)


def test_fp16_is_not_turned_into_another_precision():
    rows = refused("fp16_old.json", gpu="cpu")
    assert rows[0][0] == "DSF813"
    assert rows[0][1].endswith("fp16_old.json:9:12")
    made = imported("fp16_old.json")
    plan_ = plan(made)
    assert (plan_.train.precision, plan_.batch.global_size, plan_.batch.micro) == ("fp16", 256, 32)
    assert plan_.optimizer.weight_decay == 0.01
    # How the scale adapts is told to be dropped: every trainer has one way.
    assert left(made) >= {"fp16.loss_scale", "fp16.hysteresis", "fp16.loss_scale_window"}


def test_comments_and_trailing_commas():
    plan_ = plan(imported("commented.json", gpus=16))
    assert (plan_.batch.global_size, plan_.batch.micro, plan_.optimizer.grad_clip) == (16, 1, 0.5)


def test_accelerate_with_deepspeed():
    assert refused("accelerate_deepspeed.yaml", gpus=None)[0][0] == "DSF690"
    made = imported("accelerate_deepspeed.yaml", "batch.global=64", gpus=None)
    plan_ = plan(made)
    assert (plan_.layout.dp, plan_.layout.zero, plan_.train.precision) == (8, 3, "bf16")
    assert (plan_.batch.micro, plan_.batch.accumulation_steps) == (2, 4)
    by_micro = plan(imported("accelerate_deepspeed.yaml", "batch.micro=2", gpus=None))
    assert by_micro.batch == plan_.batch
    rows = refused("accelerate_deepspeed.yaml", "batch.global=65", gpus=None)
    assert rows[0][0] == "DSF691"


def test_accelerate_with_chosen_gpus(tmp_path: Path):
    text = (FOREIGN / "accelerate_deepspeed.yaml").read_text().replace("num_machines: 1", "num_machines: 2")
    filters = "  deepspeed_hostfile: hosts\n  deepspeed_inclusion_filter: n1:0,1,2,5@n2:0,1,2,5\n"
    path = tmp_path / "acc.yaml"
    path.write_text(text.replace("deepspeed_config:\n", f"deepspeed_config:\n{filters}"))
    wanted = Wanted(**{**A100, "gpus": None, "changes": ("batch.global=64",)})
    made = plan(import_recipe(path, Kind.ACCELERATE, wanted))
    assert (made.hostfile, made.include, made.exclude) == ("hosts", "n1:0,1,2,5@n2:0,1,2,5", None)
    assert (made.layout.nodes, made.layout.gpus_per_node) == (2, 4)


def test_accelerate_with_fsdp_names_the_trainer(tmp_path: Path):
    plan_ = plan(imported("accelerate_fsdp.yaml", "batch.global=64", gpus=None))
    assert (plan_.trainer, plan_.train.precision) == ("fsdp", "bf16")
    assert (plan_.layout.nodes, plan_.layout.gpus_per_node, plan_.layout.zero) == (2, 8, 3)
    text = (FOREIGN / "accelerate_fsdp.yaml").read_text()
    path = tmp_path / "offloads.yaml"
    path.write_text(text.replace("fsdp_offload_params: false", "fsdp_offload_params: true"))
    wanted = Wanted(**{**A100, "gpus": None, "changes": ("batch.global=64",)})
    offload = plan(import_recipe(path, Kind.ACCELERATE, wanted)).offload
    assert (offload.parameters, offload.optimizer, offload.path) == ("cpu", "cpu", None)


def test_missing_options_are_named():
    with pytest.raises(DsforgeError) as caught:
        import_recipe(FOREIGN / "megatron_pipeline.json", Kind.DEEPSPEED, Wanted())
    hints = [caught.value.hint, *(one.hint for one in caught.value.findings)]
    assert hints == ["add --model NAME", "add --gpus N", "add --gpu NAME", "add --seq-len N"]
    assert caught.value.exit_code == 2


def test_a_secret_is_not_copied(tmp_path: Path):
    path = tmp_path / "ds.json"
    path.write_text('{"train_batch_size": 8, "comet": {"enabled": true, "api_key": "abc123"}}', "utf-8")
    made = import_recipe(path, Kind.DEEPSPEED, Wanted(**A100, gpus=8))
    assert "comet.api_key" in left(made)
    assert "abc123" not in made.text + "".join(map(str, made.left))


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("recipe.yaml", "version: 1\nmodel: gpt2\n", Kind.RECIPE),
        ("recipe.json", '{"version": 1, "model": "gpt2"}', Kind.RECIPE),
        ("ds.json", '{"train_batch_size": 8}', Kind.DEEPSPEED),
        ("ds_config", '// ours\n{"train_batch_size": 8}', Kind.DEEPSPEED),
        ("default_config.yaml", "compute_environment: LOCAL_MACHINE\n", Kind.ACCELERATE),
        ("accelerate.json", '{"distributed_type": "FSDP"}', Kind.ACCELERATE),
        ("hosts", "node1 slots=8\n", Kind.HOSTFILE),
        ("my_hostfile", "node1\n", Kind.HOSTFILE),
        (".deepspeed_env", "A=1\n", Kind.ENV),
        ("notes.txt", "hello\n", Kind.RECIPE),
    ],
)
def test_a_kind_is_told_by_name_and_content(tmp_path: Path, name: str, text: str, kind: Kind):
    (tmp_path / name).write_text(text, "utf-8")
    assert kind_of(tmp_path / name) is kind


def test_a_misspelt_section_is_told_before_what_follows_from_it(tmp_path: Path):
    text = '{\n"train_batch_size": 64,\n"zero_optimisation": {"stage": 2},\n"bf16": {"enabled": true},\n'
    text += '"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}\n}\n'
    path = tmp_path / "ds.json"
    path.write_text(text)
    wanted = Wanted(model="gpt2", gpus=8, gpu="a100-sxm-80gb", seq_len=64)
    with pytest.raises(DsforgeError) as caught:
        import_recipe(path, Kind.DEEPSPEED, wanted)
    fault = caught.value
    assert (fault.code, str(fault.place)) == ("DSF610", f"{path}:3:1")
    assert fault.hint == "did you mean `zero_optimization`?"
    assert [one.code for one in fault.findings] == ["DSF122"]
    assert "zero_optimization" not in fault.findings[0].message
    assert fault.exit_code == 1
    path.write_text(text.replace("train_batch_size", "train_batch_sise"))
    with pytest.raises(DsforgeError) as caught:
        import_recipe(path, Kind.DEEPSPEED, wanted)
    assert [one.code for one in caught.value.findings] == ["DSF610", "DSF690"]
    assert caught.value.exit_code == 2


def test_lion_is_carried_and_a_step_that_no_recipe_has_is_asked_about():
    optimizer = plan(imported("lion.json")).optimizer
    assert (optimizer.type, optimizer.lr, optimizer.betas) == ("lion", 1e-4, (0.9, 0.99))
    (row,) = refused("sgd_nesterov.json")
    assert row[1].endswith("sgd_nesterov.json:5:17")
    changed = plan(imported("sgd_nesterov.json", "optimizer.type=sgd")).optimizer
    assert (changed.type, changed.momentum) == ("sgd", 0.8)
