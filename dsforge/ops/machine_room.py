"""How many ranks this machine holds, and on what."""

from __future__ import annotations

import os

import psutil

_BYTES_A_RANK = 450 * 2**20
"""A CPU rank with torch, DeepSpeed and megatron-core loaded: 426 MiB resident, 316 of them private, measured
in an eight-rank run of a tiny model."""
_RANKS_A_CORE = 8
"""More than this and start-up alone takes many minutes."""


def max_cpu_ranks() -> int:
    """Return how many CPU ranks fit the free memory and the cores this process may use, two at least."""
    cores = len(os.sched_getaffinity(0))
    by_memory = int(0.8 * psutil.virtual_memory().available // _BYTES_A_RANK)
    return max(2, min(by_memory, _RANKS_A_CORE * cores))
