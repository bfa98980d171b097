"""What offload leaves on a GPU, worked by hand."""

from __future__ import annotations

import pytest

from dsforge.cost.states import Shares, off_the_gpu
from dsforge.layout.optimizers import moments

PARAMETERS, COPIES = 8_000, 8


@pytest.mark.parametrize(
    ("zero", "optimizer", "parameters", "bytes_left"),
    [
        # Whole weights and gradients in 16 bits, an eighth of 12 bytes, and whole fp32 sums.
        (1, False, False, (2 + 2 + 12 / 8 + 4) * PARAMETERS),
        # Weights, whole fp32 sums that the gradients go into, and the shard that they are reduced into.
        (1, True, False, (2 + 4 + 4 / 8) * PARAMETERS),
        (2, False, False, 2 * PARAMETERS + (2 + 12 + 4) * PARAMETERS / 8),
        (2, True, False, 2 * PARAMETERS + 4 * PARAMETERS / 8),
        (3, False, False, (2 + 2 + 12 + 4) * PARAMETERS / 8),
        (3, True, False, 2 * PARAMETERS / 8),
        (3, True, True, 0),
    ],
)
def test_offloaded_states_take_nothing(zero: int, optimizer: bool, parameters: bool, bytes_left: float):
    off = off_the_gpu("bf16", zero, optimizer=optimizer, parameters=parameters)
    assert Shares(PARAMETERS, COPIES).total("bf16", zero, off).bytes == bytes_left


@pytest.mark.parametrize(("zero", "bytes_left"), [(1, 8 * PARAMETERS), (2, 4 * PARAMETERS)])
def test_in_fp32_there_are_no_sums_that_could_stay(zero: int, bytes_left: int):
    off = off_the_gpu("fp32", zero, optimizer=True, parameters=False)
    assert Shares(PARAMETERS, COPIES).total("fp32", zero, off).bytes == bytes_left


def test_offloaded_experts_take_nothing_either():
    off = off_the_gpu("bf16", 3, optimizer=True, parameters=False)
    held = Shares(PARAMETERS, COPIES, experts=400, expert_copies=2)
    assert held.states("bf16", 3, off) == {"parameters": 2 * (1_000 + 200), "gradients": 0, "optimizer": 0}


@pytest.mark.parametrize(
    ("kind", "momentum", "bytes_kept"),
    [("adamw", 0.9, 12), ("lion", 0.9, 8), ("sgd", 0.9, 8), ("sgd", 0.0, 4)],
)
def test_an_optimizer_keeps_its_moments_and_the_master_weights(kind: str, momentum: float, bytes_kept: int):
    held = Shares(PARAMETERS, COPIES, moments=moments(kind, momentum))
    assert held.states("bf16", 1)["optimizer"] == bytes_kept * PARAMETERS / COPIES
    assert held.states("fp32", 0)["optimizer"] == (bytes_kept - 4) * PARAMETERS
