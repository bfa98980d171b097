from __future__ import annotations

import pytest

from dsforge.cost.calibration import calibration
from dsforge.cost.job import Experts, Job
from dsforge.plan.estimate import Estimate, estimate
from dsforge.plan.job import job_of
from dsforge.plan.resolve import make_plan
from dsforge.plan.run_cost import Prices, checkpoint_bytes
from dsforge.plan.types import Plan
from dsforge.recipe.load import load_recipe
from tests.support.recipes import ROOT, plan_of

INTERLEAVED = ("parallel.tp=1", "parallel.pp=4", "parallel.vp=2", "parallel.schedule=interleaved")


def planned(name: str, *changes: str) -> Plan:
    return make_plan(load_recipe(ROOT / "recipes" / f"{name}.yaml", list(changes)), refuse=False)


def test_the_figures_of_an_estimate_follow_from_its_step():
    plan = planned("gpt3-175b-1024a100")
    made = estimate(plan)
    assert isinstance(made, Estimate)
    seconds = made.step.total
    assert made.tokens_per_second_per_gpu == pytest.approx(1536 * 2048 / seconds / 1024)
    rate, layers = made.tokens_per_second_per_gpu, 96 * 12 * 12288**2
    attention = 12 * 96 * 12288 * 2048
    operations = 6 * plan.parameters.total + attention
    assert made.full.model == pytest.approx(rate * operations / 1e12)
    assert made.full.mfu == pytest.approx(made.full.model / 312)
    assert made.causal.model == pytest.approx(rate * (operations - attention / 2) / 1e12)
    # Full recomputation is one more forward, a third of the layers' and the attention's operations.
    assert plan.train.recompute == "full"
    again = operations + 2 * layers + attention / 3
    assert made.full.hardware == pytest.approx(rate * again / 1e12, rel=1e-3)
    assert made.full.hfu == pytest.approx(made.full.hardware / 312)
    assert made.run.days * 86400 == pytest.approx(seconds * plan.train.steps)
    assert made.run.gpu_hours == pytest.approx(made.run.days * 24 * 1024)
    assert made.to_json_value()["step"]["total"] == seconds


def test_money_energy_and_checkpoints_follow_from_prices():
    plan = planned("gpt3-175b-1024a100")
    made = estimate(plan, Prices(per_gpu_hour=2.5, power_overhead=1.5, storage_gb_per_s=100))
    assert isinstance(made, Estimate)
    assert made.run.money == pytest.approx(made.run.gpu_hours * 2.5)
    # 400 W a board: A100 data sheet.
    assert made.run.energy_kwh == pytest.approx(made.run.gpu_hours * 0.4 * 1.5)
    # 2 bytes of a weight, 4 of its master copy and 8 of Adam's moments.
    assert made.run.checkpoint_bytes == 14 * plan.parameters.total
    assert made.run.checkpoint_seconds == pytest.approx(14 * plan.parameters.total / 100e9)
    # PyTorch's own replicas keep weights in fp32, and no copy.
    fsdp = planned("llama3-8b-fsdp")
    assert checkpoint_bytes(fsdp) == 12 * fsdp.parameters.total
    # In fp16 Megatron's optimizer has fp32 gradients besides, 2 + 16 bytes in all: no checkpoint has them.
    fp16 = plan_of({"trainer": "megatron-core", "train": {"precision": "fp16"}})
    assert checkpoint_bytes(fp16) == 14 * fp16.parameters.total
    free = estimate(plan)
    assert isinstance(free, Estimate)
    assert (free.run.money, free.run.checkpoint_seconds) == (None, None)


def test_an_engine_that_nobody_measured_says_whose_runs_its_figures_are_from():
    engines = {}
    for name in ("gpt3-175b-1024a100", "llama3-8b-megatron-lm"):
        made = estimate(planned(name))
        assert isinstance(made, Estimate)
        engines[name] = made.engine
    assert engines == {"gpt3-175b-1024a100": "megatron-deepspeed", "llama3-8b-megatron-lm": "megatron-lm"}


def test_groups_are_told_with_the_link_they_go_over():
    made = estimate(planned("gpt3-175b-1024a100"))
    assert isinstance(made, Estimate)
    links = {one.group: (one.ranks, one.link) for one in made.communication}
    assert links["tp"] == (8, "link")
    assert links["pp"][1] == links["dp"][1] == "infiniband"
    assert sum(one.seconds for one in made.communication) < made.step.total
    assert made.bubble_share == pytest.approx(made.step.bubble / made.step.total)
    long = estimate(planned("llama3-8b-128k-64h100"))
    assert isinstance(long, Estimate)
    assert {one.group: one.ranks for one in long.communication} == {"tp": 8, "cp": 2, "dp x cp": 8}


def test_a_gpu_without_measured_rates_gets_a_wider_band():
    known = estimate(planned("llama3-8b-megatron-lm", "cluster.gpu=h100-sxm-80gb"))
    told = estimate(planned("llama3-8b-megatron-lm", "cluster.gpu=h100-pcie-80gb"))
    assert isinstance(known, Estimate)
    assert isinstance(told, Estimate)
    assert (known.measured, told.measured) == (True, False)
    assert told.error > known.error
    assert told.step.total > known.step.total


def test_what_plan_prints_can_be_read_as_a_plan():
    plan = planned("gpt3-175b-1024a100")
    made = estimate(plan)
    assert isinstance(made, Estimate)
    assert Plan.model_validate({**plan.to_json_value(), "estimate": made.to_json_value()}) == plan
    assert "estimate" not in plan.to_json_value()


def test_micro_batches_and_virtual_stages_shrink_the_bubble():
    few = estimate(planned("gpt3-175b-1024a100", "batch.global=256"))
    many = estimate(planned("gpt3-175b-1024a100"))
    assert isinstance(few, Estimate)
    assert isinstance(many, Estimate)
    assert few.step.bubble / few.step.total > many.step.bubble / many.step.total
    parts = estimate(planned("llama3-8b-megatron-lm", *INTERLEAVED))
    whole = estimate(planned("llama3-8b-megatron-lm", *INTERLEAVED[:2]))
    assert isinstance(parts, Estimate)
    assert isinstance(whole, Estimate)
    # Half the bubble, but for what is sent between more stages.
    assert parts.step.bubble == pytest.approx(whole.step.bubble / 2, rel=0.01)


def test_a_job_carries_every_degree_of_its_plan():
    changes = ("parallel={tp: 2, pp: 2, vp: 2, cp: 2, schedule: interleaved, sequence_parallel: true}",)
    plan = planned("llama3-8b-megatron-lm", *changes, "cluster.nodes=2", "train.recompute_every=2")
    job = job_of(plan)
    assert isinstance(job, Job)
    assert (job.tp, job.pp, job.vp, job.cp, job.ep, job.dp) == (2, 2, 2, 2, 1, 2)
    assert (job.sequence_parallel, job.schedule, job.recompute_every) == (True, "interleaved", 2)
    assert (job.first_layers, job.last_layers, job.work.vocab) == (16, 16, 128_256)
    mixture = planned("llama3-8b-64h100", "model=mixtral-8x7b")
    job = job_of(mixture)
    assert isinstance(job, Job)
    assert job.work.experts == Experts(count=8, chosen=2, width=14336)


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("smoke", (), "CPU runs prove logic, not speed"),
        ("gpt3-175b-1024a100", ("train.precision=fp32",), "16-bit"),
    ],
)
def test_without_measurements_there_is_no_figure(name: str, changes: tuple[str, ...], why: str):
    made = estimate(planned(name, *changes))
    assert isinstance(made, str)
    assert why in made


def test_a_rented_machine_brings_its_network():
    """100 Gb/s for eight GPUs (Google's a2-highgpu-8g) against 200 Gb/s for each: 16 times less."""
    plan = planned("gpt3-175b-1024a100", "cluster.gpu=a100-sxm-40gb")
    usual, rented = estimate(plan), estimate(plan, shape="gcp-a2-highgpu-8g")
    assert isinstance(usual, Estimate)
    assert isinstance(rented, Estimate)
    share = calibration().fabrics["infiniband"] / calibration().fabrics["efa"]
    latency = 2 * calibration().common["message_seconds"] * 96
    sends = rented.step.pipeline_sends - latency
    assert sends == pytest.approx((usual.step.pipeline_sends - latency) * 16 * share)
    assert {one.link for one in rented.communication} == {"link", "efa"}


@pytest.mark.parametrize(
    ("name", "changes", "beyond"),
    [
        ("llama3-70b-interleaved-256h100", (), ("PyTorch's own attention",)),
        ("llama3-8b-megatron-lm", (), ()),
        ("llama3-8b-fsdp", (), ()),
        ("llama3-8b-fsdp", ("offload.optimizer=cpu", "offload.parameters=cpu"), ("offload of parameters",)),
        ("llama3-8b-64h100", ("batch.seq_len=2048", "offload.optimizer=cpu"), ("offload",)),
        ("llama3-8b-64h100", ("batch.seq_len=4096",), ("4,096 tokens a sample",)),
        ("hf-finetune", ("offload.optimizer=cpu",), ("PyTorch's own attention",)),
        ("hf-finetune", ("offload.optimizer=cpu", "cluster.gpu=a100-sxm-80gb"), ()),
    ],
)
def test_an_estimate_tells_what_no_published_run_has(
    name: str, changes: tuple[str, ...], beyond: tuple[str, ...]
):
    made = estimate(planned(name, "cluster.gpu=h100-sxm-80gb", *changes))
    assert isinstance(made, Estimate)
    assert made.beyond == beyond


def test_a_disk_has_the_rate_that_an_estimate_takes():
    disk = ("parallel.zero=3", "offload.optimizer=nvme", "offload.path=/disk")
    made, none = estimate(planned("llama3-8b-64h100", *disk)), estimate(planned("llama3-8b-64h100"))
    assert isinstance(made, Estimate)
    assert isinstance(none, Estimate)
    assert (made.disk_bytes_per_second, none.disk_bytes_per_second) == (1.6e9, None)
    assert made.beyond[-1] == "offload to a disk"
