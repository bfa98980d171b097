"""The run's folder on the disk that states are offloaded to."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.train import disk
from tests.support.replica_ranks import context_of
from tests.support.run_cases import plan_for

PLAN = plan_for({"zero": 3, "offload": {"optimizer": "nvme", "path": "disk"}})


def swap(folder: Path, rank: int, size: int) -> Path:
    path = folder / "disk" / "zero_stage_3" / "optimizer" / f"rank{rank}" / "0.tensor.swp"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(size))
    return path


def test_a_rank_gives_up_its_own_part_and_the_last_one_the_folder(tmp_path: Path):
    first, second = (context_of(rank, tmp_path, PLAN) for rank in (0, 1))
    with disk.used(first):
        own, other = swap(tmp_path, 0, 1000), swap(tmp_path, 1, 10)
        assert disk.swapped_bytes(first) == 1000
    assert (own.exists(), other.exists()) == (False, True)
    with pytest.raises(ValueError, match="died"), disk.used(second):
        raise ValueError("died")
    assert not (tmp_path / "disk").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "disk").touch()
    with pytest.raises(DsforgeError) as caught, disk.used(context_of(0, tmp_path, PLAN)):
        pass
    assert caught.value.code == "DSF804"


def test_what_is_kept_in_memory_needs_no_folder(tmp_path: Path):
    context = context_of(0, tmp_path, plan_for({"zero": 2}))
    with disk.used(context):
        assert disk.swapped_bytes(context) == 0
    assert list(tmp_path.iterdir()) == []
