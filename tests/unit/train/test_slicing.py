import pytest
import torch

from dsforge.train import slicing


def test_a_fused_gate_and_up_weight_gives_every_shard_its_part_of_both():
    full = torch.arange(8).view(8, 1)  # gate rows 0..3, up rows 4..7
    assert slicing.cut(full, 0, 2, 2, 0).flatten().tolist() == [0, 1, 4, 5]
    assert slicing.cut(full, 0, 2, 2, 1).flatten().tolist() == [2, 3, 6, 7]


def test_a_row_parallel_weight_is_cut_along_its_columns():
    full = torch.arange(8).view(2, 4)
    assert slicing.cut(full, 1, 1, 2, 1).tolist() == [[2, 3], [6, 7]]


def test_a_replicated_parameter_is_whole_on_every_shard():
    full = torch.arange(3)
    assert slicing.cut(full, None, 1, 4, 2) is full


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("shards", [1, 2, 4])
def test_join_undoes_cut(dim, stride, shards):
    full = torch.randn(24, 24)
    parts = [slicing.cut(full, dim, stride, shards, index) for index in range(shards)]
    assert all(part.shape[dim] == 24 // shards for part in parts)
    assert torch.equal(slicing.join(parts, dim, stride), full)


def test_joining_with_the_wrong_stride_is_seen():
    full = torch.arange(8)
    parts = [slicing.cut(full, 0, 2, 2, index) for index in range(2)]
    assert not torch.equal(slicing.join(parts, 0, 1), full)


def test_vocabulary_padding_is_zero_rows_at_the_end():
    padded = slicing.pad_rows(torch.ones(3, 2), 5)
    assert padded.tolist() == [[1, 1], [1, 1], [1, 1], [0, 0], [0, 0]]
