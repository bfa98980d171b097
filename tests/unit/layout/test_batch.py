"""The batch triple is solved exactly or not at all."""

from __future__ import annotations

from dsforge.layout.batch import BatchTriple, legal_micros, nearest_globals, solve


def test_solved_exactly():
    # The advised 2,048: 8 samples a GPU x 8 GPUs x 32 steps.
    assert solve(2048, 8, 8) == BatchTriple(2048, 8, 32, 8)
    assert solve(1536, 1, 16) == BatchTriple(1536, 1, 96, 16)


def test_never_floored():
    assert solve(33, 2, 2) is None
    assert solve(3, 2, 2) is None


def test_nearest_legal_global_batches():
    assert nearest_globals(33, 2, 2) == (32, 36)
    assert nearest_globals(3, 2, 2) == (4, 4)
    assert nearest_globals(36, 2, 2) == (36, 36)


def test_legal_micro_batches_divide_a_replicas_share():
    assert legal_micros(36, 3) == [1, 2, 3, 4, 6, 12]
    assert legal_micros(37, 3) == []
    assert legal_micros(2, 3) == []
