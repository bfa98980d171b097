"""Ranks that share sequences out get the rows that megatron-core deals them, and find their order again."""

from __future__ import annotations

import pytest
import torch
from megatron.core import parallel_state
from megatron.core.utils import get_batch_on_this_cp_rank

from dsforge.train.rows import Rows

CPU = torch.device("cpu")
LENGTH = 48


def test_a_whole_sequence_is_one_stretch():
    assert Rows().firsts(7) == (0,)
    assert Rows().of_part(7, CPU).tolist() == list(range(7))


def test_two_parts_by_hand():
    parts = [Rows(2, part) for part in range(2)]
    assert [rows.firsts(4) for rows in parts] == [(0, 6), (2, 4)]
    assert [rows.of_part(4, CPU).tolist() for rows in parts] == [[0, 1, 6, 7], [2, 3, 4, 5]]
    # Beside TP each shard takes a run of these.
    shards = [Rows(2, 0, 2, shard).of_shard(2, CPU).tolist() for shard in range(2)]
    assert shards == [[0, 1], [6, 7]]


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_parts_are_megatron_cores_and_together_the_sequence(parts: int, monkeypatch: pytest.MonkeyPatch):
    tokens, every = torch.randn(2, LENGTH), []
    monkeypatch.setattr(parallel_state, "get_context_parallel_world_size", lambda: parts)
    for part in range(parts):
        monkeypatch.setattr(parallel_state, "get_context_parallel_rank", lambda part=part: part)
        rows = Rows(parts, part)
        own = tokens[:, rows.of_part(LENGTH // parts, CPU)]
        assert torch.equal(own, get_batch_on_this_cp_rank({"tokens": tokens})["tokens"])
        every.append(own)
    gathered = torch.cat(every, dim=1).T
    assert torch.equal(Rows(parts).in_order(gathered), tokens.T)
