"""Sequences shared out over two ranks: attention and its gradients are those of whole ones."""

from __future__ import annotations

from pathlib import Path

import torch.multiprocessing

from tests.support import part_ranks


def test_attention_and_its_gradients_are_those_of_whole_sequences(tmp_path: Path):
    """Grouped heads; without a window, with one shorter and one longer than a part; dropped; recomputed."""
    torch.multiprocessing.spawn(part_ranks.attend, (tmp_path,), nprocs=part_ranks.PARTS)
    cases = len(part_ranks.WINDOWS) * len(part_ranks.RATES) * len(part_ranks.RECOMPUTE)
    told = [(tmp_path / f"compared-{rank}").read_text() for rank in range(part_ranks.PARTS)]
    assert told == [str(cases)] * part_ranks.PARTS
