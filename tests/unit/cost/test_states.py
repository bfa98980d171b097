"""Bytes of model states, against the published figures."""

from __future__ import annotations

import pytest

from dsforge.cost.states import ADAM, nominal, state_bytes


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


def test_nominal_figures_of_the_worked_examples():
    assert nominal(175e9, "bf16", tp=8, pp=8).model_state_bytes == 2.45e12
    assert nominal(175e9, "bf16", tp=8, pp=8).bytes_per_gpu == 3.828125e10
    assert nominal(13e9, "fp32", tp=1, pp=1).bytes_per_gpu == 2.08e11
