"""Bytes of activations: every figure of Korthikanti et al. 2022, and what layers of other kinds keep."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from dsforge.cost.job import Experts, Job, Work
from dsforge.cost.machine import machine_of
from dsforge.cost.memory.activations import layer_bytes
from dsforge.cost.memory.constants import memory_constants
from dsforge.cost.memory.stages import kept_layers

_ROWS = list(
    csv.DictReader((Path(__file__).parents[2] / "data" / "activation_formula.csv").open(encoding="utf-8"))
)
_PLAIN = replace(memory_constants().engines["megatron"], hidden_bytes=0.0)


def _rows(prefix: str) -> list[dict[str, str]]:
    return [row for row in _ROWS if row["id"].startswith(prefix)]


def _id(row: dict[str, str]) -> str:
    return row["id"]


def _job(row: dict[str, str], **changes) -> Job:
    """GPT as the paper has it: dropout, scores in memory, no biases counted."""
    machine = machine_of("a100-sxm-80gb", 8)
    assert machine is not None
    layers, hidden, heads, seq = (int(row[key]) for key in ("layers", "hidden", "heads", "seq"))
    work = Work(
        *(layers, hidden, heads, heads, hidden // heads, 4 * hidden, 51200, seq), gated=False, dropout=True
    )
    made = Job(
        *(work, machine, "megatron", 8, int(row["tp"]), 1, 1, int(row["micro_batch"]), 1024, "fp16"),
        flash_attention=False,
    )
    return replace(made, **changes)


def _layer(job: Job) -> float:
    return job.tokens * layer_bytes(job, _PLAIN, experts=False).kept


_KINDS = {
    "tp": {},
    "tp+sp": {"sequence_parallel": True},
    "tp+sel": {"recompute": "selective"},
    "tp+sp+sel": {"sequence_parallel": True, "recompute": "selective"},
    "full": {"recompute": "full"},
    "none(no tp)": {"tp": 1},
}


def test_every_row_is_asserted_here():
    assert sum(map(len, map(_rows, ("korth-layer-", "korth-fig7-", "korth-fig1-")))) == len(_ROWS) == 48


@pytest.mark.parametrize("row", _rows("korth-layer-"), ids=_id)
def test_table_2_of_korthikanti(row: dict[str, str]):
    kind = row["id"].removeprefix("korth-layer-").partition("-")[2]
    # Selective recomputation keeps nothing of the core; FlashAttention's sums are no part of the paper.
    assert _layer(_job(row, **_KINDS[kind])) == pytest.approx(float(row["expected"]), rel=1e-12)


@pytest.mark.parametrize("row", _rows("korth-fig7-"), ids=_id)
def test_figure_7_of_korthikanti(row: dict[str, str]):
    kind = row["id"].split("-", 3)[3]
    changes = _KINDS[{"sp": "tp+sp", "sel": "tp+sel", "sp+sel": "tp+sp+sel", "full": "full"}[kind]]
    share = _layer(_job(row, **changes)) / _layer(_job(row))
    # The formula's value to two digits; the figure's own differ in the second.
    assert 100 * share == pytest.approx(float(row["expected"]), abs=0.0051)


@pytest.mark.parametrize("row", _rows("korth-fig1-"), ids=_id)
def test_figure_1_of_korthikanti(row: dict[str, str]):
    kind = "tp+sp+sel" if row["id"].endswith("sel") else "tp"
    stages = int(row["pp"])
    job = _job(row, pp=stages, vp=int(row["vp"]), **_KINDS[kind])
    first = kept_layers(job, 0, job.work.layers // stages)
    assert first * _layer(job) == pytest.approx(float(row["expected"]) * 2**30, rel=1e-9)


def _layers(**changes) -> Job:
    return _job({**_ROWS[0], "tp": "2"}, **changes)


def test_depth_of_the_schedules():
    """Eight layers a stage, four stages, 16 micro-batches."""
    job = replace(_layers(pp=4, global_batch=64), dp=1)
    assert [kept_layers(job, stage, 8) for stage in range(4)] == [32, 24, 16, 8]
    assert kept_layers(replace(job, schedule="gpipe"), 3, 8) == 8 * 16
    assert kept_layers(replace(job, global_batch=8), 0, 8) == 8 * 2
    interleaved = replace(job, vp=2)
    assert [kept_layers(interleaved, stage, 8) for stage in range(4)] == [44, 36, 28, 20]
    # Four parts of 5 micro-batches ahead instead of 4, of 4 layers each.
    assert kept_layers(replace(interleaved, vp_group=5), 3, 8) == 24


def test_layers_that_stand_for_embedding_and_loss():
    """6 layers and both ends over 4 stages of 2 parts: the last stage's loss part has no layer."""
    job = replace(_layers(pp=4, vp=2, global_batch=64, ends_count=True), dp=1)
    assert kept_layers(job, 3, 1) == 4
    assert kept_layers(job, 0, 1) == 11 - 7


def test_flash_attention_keeps_no_scores():
    whole, flash = _layers(), _layers(flash_attention=True)
    heads, seq = whole.work.heads / 2, whole.work.seq_len
    scores = layer_bytes(whole, _PLAIN, experts=False).kept - layer_bytes(flash, _PLAIN, experts=False).kept
    assert scores == 5 * heads * seq - 4 * heads


def test_grouped_queries_and_gated_mlps():
    work = Work(32, 4096, 32, 8, 128, 14336, 128256, 8192, gated=True)
    job = replace(_layers(tp=1, flash_attention=True), work=work)
    # Two norms in and out; queries and the core's output; keys, values; gate, up and their product; sums.
    expected = 4 * 2 * 4096 + 2 * 2 * 4096 + 2 * 2 * 1024 + 3 * 2 * 14336 + 4 * 32
    assert layer_bytes(job, _PLAIN, experts=False).kept == expected


def test_keys_and_values_that_are_gathered_stay_and_of_a_ring_those_sent_on():
    """Of one token a part holds its own keys and values, and beside them those that it was sent."""
    one = _layers(tp=1, flash_attention=True)
    ring, gathered = (replace(one, cp=4, gathers_context=gathers) for gathers in (False, True))
    kept = [layer_bytes(job, _PLAIN, experts=False).kept for job in (one, ring, gathered)]
    both = 2 * 2 * one.work.kv_width
    assert [kept[1] - kept[0], kept[2] - kept[0]] == [both, 4 * both]


def test_experts_keep_what_is_sent_to_them():
    experts = Experts(count=64, chosen=6, width=1408, shared=2)
    work = Work(27, 2048, 16, 16, 128, 11264, 163840, 4096, gated=True, experts=experts)
    job = replace(_layers(tp=1, flash_attention=True), work=work, ep=8)
    plain = layer_bytes(job, _PLAIN, experts=False).kept - 3 * 2 * 11264
    routed = 6 * (4 * 2 * 2048 + 3 * 2 * 1408)
    assert layer_bytes(job, _PLAIN, experts=True).kept == plain + routed + 3 * 2 * 2 * 1408
    act = replace(job, recompute="selective", recompute_modules=("moe_act",))
    assert layer_bytes(act, _PLAIN, experts=True).kept == plain + routed + 3 * 2 * 2 * 1408 - 6 * 2 * 1408
