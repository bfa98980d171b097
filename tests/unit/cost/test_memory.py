"""Memory of stages: figures worked by hand, what must never grow or shrink, and published measurements."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsforge.catalog.tables import find_model
from dsforge.cost.job import Experts, Job, Work
from dsforge.cost.machine import machine_of
from dsforge.cost.memory import fullest, stage_memory
from dsforge.cost.memory.constants import memory_constants
from dsforge.cost.memory.parameters import stage
from dsforge.cost.memory.stages import stage_layers
from dsforge.layout.shape import padded_vocab, shape_of
from dsforge.layout.stages import StageLayers
from dsforge.layout.stages import held as held_by_rank
from tests.support.recipes import ROOT

GIB = 2**30
LLAMA = Work(32, 4096, 32, 8, 128, 14336, 128256, 8192, gated=True)


def job(**changes) -> Job:
    machine = machine_of("h100-sxm-80gb", 8)
    assert machine is not None
    made = Job(LLAMA, machine, "megatron-core", 64, 2, 4, 8, 1, 256, "bf16", zero=1, sequence_parallel=True)
    return replace(made, **changes)


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3-8b", "llama2-70b"])
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_parameters_are_those_of_the_layout(name: str, tp: int):
    preset = find_model(name)
    shape = shape_of(preset.shape, name, None, 2048)
    vocab = padded_vocab(shape.vocab, tp)
    work = Work(
        *(shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.ffn_hidden, vocab),
        seq_len=2048,
        gated=shape.traits.gated,
        tied=shape.tied,
        bias=shape.traits.mlp_bias,
        norm_bias=shape.traits.norm == "layernorm",
        positions=shape.max_positions if shape.traits.position == "learned" else 0,
    )
    for first, last in ((True, True), (True, False), (False, False), (False, True)):
        held = stage(job(work=work, tp=tp), 4, 0, first=first, last=last)
        assert held.experts == 0
        assert held.dense == held_by_rank(shape, StageLayers(0, 0, 4, first, last), vocab, tp).total


def test_states_of_megatron_worked_by_hand():
    """A rank of 4 stages, TP 2, DP 8: bf16 weights, fp32 gradients, and an eighth of 12 bytes a parameter."""
    middle = stage_memory(job())[1]
    attention = 4096 * (2048 + 2 * 512) + 2048 * 4096
    held = 8 * (attention + 3 * 4096 * 7168 + 2 * 4096)
    assert middle.components["weights"] == 2 * held
    assert middle.components["gradients"] == 4 * held
    assert middle.components["optimizer"] == 12 * held // 8
    first, last = stage_memory(job())[0], stage_memory(job())[-1]
    words = 2 * 128256 // 2 * 4096
    assert first.components["weights"] == 2 * held + words
    assert last.components["weights"] == 2 * held + words + 2 * 4096
    assert last.components["logits"] == 6 * 8192 * 128256 // 2


def test_experts_are_shared_out_over_their_own_ranks():
    """EP 8 of 8 replicas: every rank has its own experts, so their optimizer is not shared."""
    work = replace(LLAMA, experts=Experts(64, 6, 1408))
    own = job(work=work, tp=1, pp=1, ep=8, gpus=8)
    experts = 32 * 8 * 3 * 4096 * 1408
    held = stage(own, 32, 0, first=True, last=True)
    assert held.experts == experts
    (memory,) = stage_memory(own)
    assert memory.components["optimizer"] == 12 * experts + 12 * held.dense // 8
    (half,) = stage_memory(replace(own, ep=4))
    assert half.components["optimizer"] == 12 * 2 * experts // 2 + 12 * held.dense // 8


def test_dense_layers_stand_before_those_of_experts():
    work = replace(LLAMA, experts=Experts(64, 6, 1408, dense_layers=9))
    stages = stage_memory(job(work=work, ep=8))
    plain = stage_memory(job())
    same = stages[0].components["weights"]
    assert same == plain[0].components["weights"]
    mixed = 64 * 4096 + 8 * 3 * 4096 * 704
    more = 2 * (3 * 4096 * 7168 - mixed)
    assert stages[1].components["weights"] - stages[2].components["weights"] == more


def test_offload_takes_states_to_the_host_or_its_disks():
    deepspeed = job(engine="deepspeed", tp=1, pp=1, dp=64, zero=3, recompute="full", sequence_parallel=False)
    (kept,) = stage_memory(deepspeed)
    (host,) = stage_memory(replace(deepspeed, offload=True))
    assert kept.host_bytes == 0
    assert host.components["optimizer"] == 0
    held = sum(stage(deepspeed, 32, 0, first=True, last=True))
    assert host.host_bytes == pytest.approx(1.5 * 16 * held / 64 * 8, rel=1e-6)
    both = {"offload": True, "offload_parameters": True}
    # Besides gradients in memory: four buffers of the 100 million parameters that are updated at once, and of
    # the one that passes them, which may be the table of words.
    table = 128256 * 4096 / 64
    states = 4 * held / 64 + 4 * 4 * (1e8 + table)
    (mixed,) = stage_memory(replace(deepspeed, **both, optimizer_on_disk=True))
    assert mixed.components["weights"] == 0
    assert mixed.nvme_bytes == pytest.approx(16 * held / 64 * 8, rel=1e-6)
    assert mixed.host_bytes == pytest.approx(1.5 * 8 * (states + 2 * held / 64), rel=1e-6)
    (disks,) = stage_memory(replace(deepspeed, **both, optimizer_on_disk=True, parameters_on_disk=True))
    assert disks.nvme_bytes == pytest.approx(18 * held / 64 * 8, rel=1e-6)
    # Of weights in 16 bits five that are in use, and those that were updated.
    assert disks.host_bytes == pytest.approx(1.5 * 8 * (states + 2 * (5 * table + 1e8 + table)), rel=1e-6)
    (weights,) = stage_memory(replace(deepspeed, **both, parameters_on_disk=True))
    assert weights.nvme_bytes == pytest.approx(2 * held / 64 * 8, rel=1e-6)


def test_fsdp_keeps_fp32_shards_on_the_host_and_no_more():
    fsdp = job(engine="fsdp2", tp=1, pp=1, dp=16, gpus=16, zero=3, recompute="full", sequence_parallel=False)
    (made,) = stage_memory(replace(fsdp, offload=True, offload_parameters=True))
    held = sum(stage(fsdp, 32, 0, first=True, last=True))
    # 4 weights + 4 gradients + 8 moments of a parameter, whose shards lie on two nodes.
    assert made.host_bytes == pytest.approx(16 * held / 2, rel=1e-6)
    assert [made.components[name] for name in ("weights", "gradients", "sums", "optimizer")] == [0, 0, 0, 0]


def test_what_is_larger_by_what():
    (memory,) = stage_memory(job(pp=1, dp=32))
    engine = memory_constants().engines["megatron-core"]
    assert memory.allocated == sum(memory.components.values())
    assert memory.static < memory.allocated
    assert memory.reserved == memory.allocated + int(engine.reserve * (memory.allocated - memory.static))
    assert memory.device == memory.reserved + engine.context_mib * 2**20


_ENGINES = [name for name in memory_constants().engines if "-" not in name or name == "megatron-core"]

jobs = st.builds(
    lambda engine, tp, pp, vp, micro, zero, recompute, schedule, flash: job(
        engine=engine,
        tp=tp,
        pp=pp,
        vp=vp if pp > 1 else 1,
        micro=micro,
        zero=zero,
        recompute=recompute,
        schedule=schedule,
        flash_attention=flash,
        dp=16,
        gpus=16 * tp * pp,
        global_batch=512,
        sequence_parallel=tp > 1,
    ),
    st.sampled_from(_ENGINES),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 3, 4, 5, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2]),
    st.integers(0, 3),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from(["1f1b", "gpipe"]),
    st.booleans(),
)


@given(jobs)
def test_the_fullest_is_the_fullest(one: Job):
    stages = stage_memory(one)
    assert [memory.layers for memory in stages] == stage_layers(one)
    assert sum(memory.layers for memory in stages) == 32
    assert fullest(one) == max(memory.reserved for memory in stages)


def test_gpipe_keeps_the_softmax_of_every_micro_batch_on_the_last_stage():
    one = job(engine="deepspeed")
    other, gpipe = (stage_memory(replace(one, schedule=name)) for name in ("1f1b", "gpipe"))
    more = [b.components["logits"] - a.components["logits"] for a, b in zip(other, gpipe, strict=True)]
    # 32 micro-batches of a sample, of which one is at work; TP 2 halves the columns; fp32.
    assert more == [0, 0, 0, 31 * 8192 * 64128 * 4]


@given(jobs)
def test_more_work_never_takes_less_memory(one: Job):
    peak = fullest(one)
    assert fullest(replace(one, work=replace(LLAMA, layers=64))) > peak
    assert fullest(replace(one, work=replace(LLAMA, seq_len=16384))) > peak
    assert fullest(replace(one, micro=2 * one.micro, global_batch=2 * one.global_batch)) > peak


@given(jobs)
def test_each_zero_stage_and_each_recomputation_takes_no_more(one: Job):
    for less, more in ((3, 2), (2, 1), (1, 0)):
        sharded, kept = stage_memory(replace(one, zero=less))[0], stage_memory(replace(one, zero=more))[0]
        assert _states(sharded) <= _states(kept)
    kinds = [stage_memory(replace(one, recompute=kind)) for kind in ("full", "selective", "none")]
    for full, selective, none in zip(*kinds, strict=True):
        assert full.components["activations"] <= selective.components["activations"]
        assert selective.components["activations"] <= none.components["activations"]
        assert full.allocated <= selective.allocated + 1 <= none.allocated + 2


def _states(memory) -> int:
    return sum(memory.components[kind] for kind in ("weights", "gradients", "sums", "optimizer"))


@given(jobs, st.sampled_from([(1, 2), (2, 4), (4, 8)]))
def test_tensor_parallel_ranks_hold_the_whole_between_them(one: Job, degrees: tuple[int, int]):
    few, many = (replace(one, tp=tp) for tp in degrees)
    held = [stage(each, 4, 0, first=True, last=True).dense for each in (few, many)]
    norms = (4 * 2 + 1) * 4096
    assert degrees[0] * (held[0] - norms) == degrees[1] * (held[1] - norms)
    assert fullest(replace(many, sequence_parallel=True)) <= fullest(few) + 2**20


@pytest.fixture(scope="module")
def scored() -> dict:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import accuracy_memory
        from occupied import read
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    lines = accuracy_memory.scored(list(read(ROOT / "tests" / "data" / "memory.csv")))
    return {
        "groups": accuracy_memory.summary(lines, "group"),
        "verdicts": accuracy_memory.verdicts(lines),
        "missed": [line for line in lines if "why" in line],
    }


@pytest.mark.parametrize(
    ("group", "rows", "median", "near"),
    [
        ("static", 62, 0.003, 0.97),
        ("peak allocated", 71, 0.012, 0.94),
        ("reserved / nvidia-smi", 75, 0.03, 0.85),
    ],
)
def test_published_memory_is_met(scored: dict, group: str, rows: int, median: float, near: float):
    found = scored["groups"][group]
    assert found["rows"] == rows
    assert found["median"] <= median
    assert found["near"] >= near


def test_published_verdicts_are_met(scored: dict):
    assert scored["missed"] == []
    told = scored["verdicts"]
    assert (told["fits_rows"], told["oom_rows"]) == (137, 6)
    assert told["accepted"] >= 0.97
    assert told["false_fits"] == []
    assert len(told["contradicted"]) <= 1
