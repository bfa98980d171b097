"""The time of a step: figures worked by hand, what must never shrink, and published measurements."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsforge.cost.calibration import calibration
from dsforge.cost.job import Experts, Job, Latent, Work
from dsforge.cost.kernels import Kernels
from dsforge.cost.machine import machine_of
from dsforge.cost.network import Network
from dsforge.cost.step import step_seconds
from tests.support.recipes import ROOT

GPT3 = Work(96, 12288, 96, 96, 128, 49152, 51200, 2048, gated=False)


def job(**changes) -> Job:
    machine = machine_of("a100-sxm-80gb", 8)
    assert machine is not None
    made = Job(
        GPT3, machine, "megatron", 1024, tp=8, pp=8, dp=16, micro=1, global_batch=1536, precision="bf16"
    )
    return replace(made, **changes)


def test_a_product_takes_its_operations_and_its_operands():
    share = calibration().generations["ampere"].matmul
    compute = 2 * 2048 * 6144 * 12288 / (271.2e12 * share)
    moved = 2 * (2048 * 12288 + 12288 * 6144 + 2048 * 6144) / (2039e9 * 0.8)
    kernels = Kernels(job(), calibration())
    assert kernels.product(2048, 6144, 12288) == pytest.approx(compute + moved)


def test_a_product_works_its_last_tile_out_whole():
    kernels = Kernels(job(), calibration())
    rate, memory = 271.2e12 * calibration().generations["ampere"].matmul, 2039e9 * 0.8
    moved = 2 * (2048 * 4096 + 4096 * 2880 + 2048 * 2880)
    assert kernels.product(2048, 2880, 4096) == pytest.approx(2 * 2048 * 3072 * 4096 / rate + moved / memory)


def test_narrow_heads_have_more_exponentials_and_blackwell_waits_for_them():
    """The same width in heads of 64 and of 128: half and all of the time is exponentials'."""
    for gpu, more in (("a100-sxm-80gb", 1.5), ("b200-sxm-180gb", 2.0)):
        machine = machine_of(gpu, 8)
        assert machine is not None
        base = job(engine="megatron-core", machine=machine, tp=1)
        narrow = replace(base, work=replace(GPT3, heads=192, kv_heads=192, head_dim=64))
        wide, small = (Kernels(one, calibration()).layer().core for one in (base, narrow))
        assert small == pytest.approx(more * wide)


def test_the_bubble_is_what_1f1b_says():
    """(p - 1) / (v m) of a stage's busy time: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2."""
    for vp in (1, 3):
        step = step_seconds(job(vp=vp))
        busy = step.compute + step.recompute + step.tensor_parallel + step.pipeline_sends
        assert step.bubble == pytest.approx(busy * 7 / (vp * 96))


def test_the_slowest_stage_has_the_most_layers_or_the_head():
    """126 layers on 16 stages: 7, 14 times 8 and 7, as Llama 3's (arXiv:2407.21783, section 3.3.2)."""
    even = step_seconds(job(work=replace(GPT3, layers=128), pp=16, dp=8))
    odd = step_seconds(job(work=replace(GPT3, layers=126), pp=16, dp=8))
    assert odd.compute == pytest.approx(even.compute)
    assert (even.head > 0, odd.head) == (True, 0)
    dealt = step_seconds(job(work=replace(GPT3, layers=126), pp=16, dp=8, first_layers=12, last_layers=2))
    assert dealt.compute == pytest.approx(even.compute * 12 / 8)


def test_sums_of_gradients_are_read_and_written_once_a_micro_batch():
    parameters = (96 * 12 * 12288**2 + 51200 * 12288) / 64
    # Fused into the product in fp32: 4 read, 4 written for 2; bf16 otherwise: 2 + 4 read and 4 written.
    for engine, moved in (("megatron-lm", 6), ("megatron-deepspeed", 10), ("megatron-core", 2)):
        step = step_seconds(job(engine=engine))
        assert step.optimizer == pytest.approx((28 + moved * 96) * parameters / 2039e9)


def test_an_engine_that_deals_by_time_takes_layers_off_the_stage_with_the_head():
    wide = replace(GPT3, vocab=512_000)
    even, dealt = step_seconds(job(work=wide)), step_seconds(job(work=wide, engine="nanotron"))
    assert even.head > 0
    assert (dealt.compute + dealt.head) < 0.95 * (even.compute + even.head)


def test_an_offloaded_update_takes_the_host_its_link_and_its_disks():
    parameters = (96 * 12 * 12288**2 + 51200 * 12288) / 8 / 1024
    step = step_seconds(job(offload=True))
    assert step.optimizer == pytest.approx(step_seconds(job()).optimizer - 28 * parameters * 128 / 2039e9)
    assert step.offload == pytest.approx(parameters * (2e-9 + 4 / 25e9))
    on_disk = job(offload=True, optimizer_on_disk=True)
    disks = step_seconds(on_disk).offload - step.offload
    assert disks == pytest.approx(24 * parameters / 1.6e9)
    weights = replace(on_disk, offload_parameters=True, parameters_on_disk=True, recompute="full")
    more = step_seconds(weights).offload - step.offload - disks
    # Of two bytes: read in three passes over each micro-batch, written once; not copied up at the step's end.
    passes = 3 * weights.accumulation_steps
    copied = 2 * (passes - 1) * parameters / 25e9
    assert more == pytest.approx(2 * (passes + 1) * parameters / 1.6e9 + copied)
    in_memory = replace(job(offload=True), offload_parameters=True, recompute="full")
    assert step_seconds(in_memory).offload - step.offload == pytest.approx(copied)


def test_layers_without_experts_have_the_plain_mlp():
    few = Work(
        48, 2048, 32, 4, 128, 6144, 151936, 4096, gated=True, experts=Experts(128, 8, 768, dense_layers=24)
    )
    all_, none = replace(few, experts=Experts(128, 8, 768)), replace(few, experts=None)
    made = [Kernels(job(work=work, tp=1), calibration()).layer().forward for work in (few, all_, none)]
    passes = calibration().common["expert_passes"] * calibration().common["elementwise"]
    assert made[2] < made[0] < made[1]
    assert passes > 0


def test_experts_split_by_tp_sort_the_copies_of_all_its_ranks():
    work = Work(48, 2048, 32, 4, 128, 768, 151936, 4096, gated=True, experts=Experts(128, 8, 768))
    split, whole = (
        Kernels(job(work=work, tp=4, ep=32, expert_tp=expert_tp), calibration()).layer().forward
        for expert_tp in (None, 1)
    )
    common = calibration().common
    more = common["elementwise"] * common["expert_passes"] * 2 * 2048 * 8 * 2048 * (1 - 1 / 4)
    assert split > whole + more / 2039e9 / 2


def test_latent_attention_multiplies_what_its_matrices_hold():
    """DeepSeek-V3's attention (arXiv:2412.19437, table of hyper-parameters): 187.1 M weights a layer."""
    latent = Latent(query_rank=1536, kv_rank=512, plain=128, rotary=64, value=128)
    work = Work(61, 7168, 128, 128, 56, 18432, 129280, 4096, gated=True, latent=latent)
    assert work.attention_parameters == 187_105_280
    assert work.score_width == 128 * (192 + 128) / 2


def test_full_recomputation_is_one_more_forward():
    once, again = step_seconds(job()), step_seconds(job(recompute="full"))
    layer = Kernels(job(), calibration()).layer()
    tensor = Network(job(), calibration()).tensor_parallel()
    layers = 96 / 8 * 96
    assert once.recompute == 0
    assert again.recompute == pytest.approx(layers * (layer.forward + tensor))
    assert again.compute == once.compute


def test_one_all_reduce_moves_what_a_ring_moves():
    constants = calibration()
    rate = 235e9 * constants.common["link"]
    moved = 2 * 7 / 8 * 2048 * 12288 * 2
    latency = constants.common["message_seconds"]
    assert Network(job(), constants).tensor_parallel() == pytest.approx(2 * (moved / rate + latency))


def test_a_gathering_is_waited_for_and_a_ring_as_far_as_the_core_hides_it_not():
    """Each of 4 parts takes in the keys and values of the 3 others over the network: two of 2 bytes."""
    own = job(pp=1, dp=2, cp=4, global_batch=64)
    gathers = replace(own, gathers_context=True)
    network = Network(gathers, calibration())
    wanted = 3 * 512 * 2 * 12288 / 8 * 2 / network.port
    assert network.context_parallel(1.0) == pytest.approx(wanted)
    ring = Network(own, calibration())
    assert ring.context_parallel(1.0) == 0.0
    assert ring.context_parallel(wanted / 4) == pytest.approx(0.75 * wanted)
    again = [step_seconds(replace(one, recompute="selective")).recompute for one in (own, gathers)]
    assert again[1] - again[0] == pytest.approx(96 * 32 * wanted)


def test_a_group_of_whole_nodes_uses_all_their_ports():
    network = Network(job(tp=1), calibration())
    port = 25e9 * calibration().fabrics["infiniband"]
    assert network.group_rate(64, 1) == pytest.approx(min(235e9 * 0.8, 8 * port))
    assert network.group_rate(64, 8) == pytest.approx(port)
    assert network.group_rate(4, 1) == pytest.approx(235e9 * calibration().common["link"] * 0.8)


def test_a_token_crosses_to_a_node_once_however_many_experts_it_has_there():
    machine = machine_of("h100-sxm-80gb", 8)
    assert machine is not None
    work = Work(48, 2048, 32, 4, 128, 768, 151936, 4096, gated=True, experts=Experts(128, 8, 768))
    common = {
        "work": work,
        "machine": machine,
        "engine": "megatron-core",
        "tp": 1,
        "pp": 1,
        "global_batch": 64,
    }
    made = job(**common, gpus=16, dp=16, ep=16)
    port = 50e9 * calibration().fabrics["infiniband"]
    row = 4096 * 2048 * 2
    far, near = row * (1 - 0.5**8) / port, row * 8 * (7 / 8) / (365e9 * calibration().common["dispatch"])
    assert Network(made, calibration()).expert_parallel() == pytest.approx(2 * (far + near))
    # Without that, half of its eight copies leave the node.
    plain = Network(replace(made, engine="nemo"), calibration())
    assert plain.expert_parallel() == pytest.approx(2 * (row * 4 / port + near))


@given(
    st.sampled_from(["megatron-core", "megatron", "fsdp", "deepspeed", "nanotron"]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from([0, 1, 3]),
)
def test_more_work_never_takes_less_time(engine: str, tp: int, pp: int, recompute: str, zero: int):
    base = job(engine=engine, tp=tp, pp=pp, dp=16, gpus=16 * tp * pp, recompute=recompute, zero=zero)
    seconds = step_seconds(base).total
    assert seconds > 0
    assert step_seconds(replace(base, work=replace(GPT3, layers=192))).total > seconds
    assert step_seconds(replace(base, work=replace(GPT3, seq_len=4096))).total > seconds
    assert step_seconds(replace(base, global_batch=3072)).total > seconds
    assert step_seconds(replace(base, recompute="full")).total >= seconds
    slower = replace(base.machine, network_bytes_per_second=1e9)
    assert step_seconds(replace(base, machine=slower)).total >= seconds


@pytest.fixture(scope="module")
def errors() -> dict[str, list[float]]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from published import read
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    found: dict[str, list[float]] = {}
    for row in read(ROOT / "tests" / "data" / "throughput.csv"):
        assert row.job is not None, row.why
        found.setdefault(row.group, []).append(abs(row.predicted() / row.seconds - 1))
    return found


@pytest.mark.parametrize(
    ("group", "rows", "most"),
    [
        ("dense 16-bit", 285, 0.045),
        ("dense fp8", 70, 0.062),
        ("Blackwell dense", 64, 0.065),
        ("MoE", 106, 0.17),
    ],
)
def test_published_step_times_are_met(errors: dict[str, list[float]], group: str, rows: int, most: float):
    assert len(errors[group]) == rows
    assert sum(errors[group]) / rows <= most


def test_experts_of_a_rank_have_a_launch_and_a_half_empty_tile_each():
    work = Work(48, 2048, 32, 4, 128, 768, 151936, 4096, gated=True, experts=Experts(128, 8, 768))

    def forward(ep: int) -> float:
        return Kernels(job(work=work, tp=1, ep=ep), calibration()).layer().forward

    kernels = Kernels(job(work=work, tp=1), calibration())
    more = 128 - 4
    tiles = 2 * more * 256 / 2 * 3 * 2048 * 768 / kernels.half_rate
    weights = more * 3 * 2 * 2048 * 768 / (0.8 * kernels.memory_rate)
    assert forward(1) - forward(32) == pytest.approx(more * 10e-6 + tiles + weights, rel=1e-6)
