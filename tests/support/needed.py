"""What a test needs of the machine: without it a skip that pytest reports, or a failure where CI has all."""

from __future__ import annotations

import os

import pytest

from dsforge.launch.op_cache import DISK, folder_of, ops_dir
from dsforge.rank import ops


def absent(why: str) -> None:
    """Skip a test, or fail it where DSFORGE_CLUSTER_TESTS says that nothing may be missing."""
    given_up = pytest.fail if os.environ.get("DSFORGE_CLUSTER_TESTS") == "mandatory" else pytest.skip
    given_up(why)


def need_disk_kernel() -> None:
    """Give a test up without the kernel that reads and writes a disk."""
    if folder_of(DISK) not in ops.built(ops_dir(os.environ)):
        absent(
            "the kernel that reads and writes a disk is not built: `apt install libaio-dev`, `make kernels`"
        )
