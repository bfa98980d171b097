"""Bytes of model states, against the published figures."""

from __future__ import annotations

import pytest

from dsforge.cost.memory.constants import keeper_of
from dsforge.cost.states import ADAM, Keeper, Shares, nominal, state_bytes


def test_bytes_a_parameter():
    assert ADAM["bf16"].total == ADAM["fp32"].total == 16


@pytest.mark.parametrize(
    ("zero", "gigabytes"),
    # Rajbhandari et al. 2020, figure 1: 7.5B parameters on 64 GPUs: 120, 31.4, 16.6 and 1.9 GB.
    [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)],
)
def test_the_zero_papers_example(zero: int, gigabytes: float):
    total = sum(state_bytes(7_500_000_000, "fp16", zero, 64).values())
    assert round(total / 1e9, 1) == gigabytes


def test_shards_are_rounded_up():
    assert state_bytes(10, "fp32", 3, 4) == {"parameters": 12, "gradients": 12, "optimizer": 24}


@pytest.mark.parametrize(
    ("keeper", "precision", "zero", "held", "sums"),
    [
        ("deepspeed", "bf16", 1, {"parameters": 160, "gradients": 160, "optimizer": 240}, 320),
        # PyTorch's own: fp32 throughout. Weights gathered in bf16 stay until their backward, or do not.
        ("fsdp", "bf16", 0, {"parameters": 320, "gradients": 320, "optimizer": 640}, 0),
        ("fsdp", "bf16", 1, {"parameters": 80 + 160, "gradients": 320, "optimizer": 160}, 0),
        ("fsdp", "bf16", 2, {"parameters": 80 + 160, "gradients": 80, "optimizer": 160}, 0),
        ("fsdp", "fp32", 2, {"parameters": 80 + 320, "gradients": 80, "optimizer": 160}, 0),
        ("fsdp", "fp16", 3, {"parameters": 80, "gradients": 80, "optimizer": 160}, 0),
        # Megatron: gradients of bf16 weights are summed in fp32, and fp16 ones copied to it.
        ("megatron", "bf16", 1, {"parameters": 160, "gradients": 320, "optimizer": 240}, 0),
        ("megatron", "fp16", 1, {"parameters": 160, "gradients": 160, "optimizer": 320}, 0),
        ("megatron", "fp32", 1, {"parameters": 320, "gradients": 320, "optimizer": 160}, 0),
    ],
)
def test_each_engine_keeps_states_in_its_own_way(
    keeper: Keeper, precision: str, zero: int, held: dict[str, int], sums: int
):
    shares = Shares(80, 4, keeper=keeper)
    assert shares.states(precision, zero) == held
    assert shares.fp32_sums(precision, zero) == sums


@pytest.mark.parametrize(
    ("trainer", "keeper"),
    [
        *(("forge", "deepspeed"), ("transformers", "deepspeed"), ("fsdp", "fsdp"), ("ddp", "fsdp")),
        *(("megatron-core", "megatron"), ("megatron-lm", "megatron"), ("gpt-neox", "deepspeed")),
        ("script", "deepspeed"),
    ],
)
def test_a_trainer_keeps_them_as_the_engine_it_is_measured_by(trainer: str, keeper: Keeper):
    assert keeper_of(trainer) == keeper


def test_nominal_figures_of_the_worked_examples():
    assert nominal(175e9, "bf16", tp=8, pp=8).model_state_bytes == 2.45e12
    assert nominal(175e9, "bf16", tp=8, pp=8).bytes_per_gpu == 3.828125e10
    assert nominal(13e9, "fp32", tp=1, pp=1).bytes_per_gpu == 2.08e11
