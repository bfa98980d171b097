"""How many ranks this machine holds, and on what."""

from __future__ import annotations

import os

import psutil

_BYTES_A_RANK = 450 * 2**20
"""A CPU rank with torch, DeepSpeed and megatron-core loaded: 426 MiB resident, 316 of them private, measured
in an eight-rank run of a tiny model."""
_RANKS_A_CORE = 8
"""More than this and start-up alone takes minutes."""

_START_UP_CPU_SECONDS = 5.7
"""CPU seconds of a rank and its wrapper up to the end of its first step: four ranks of `recipes/smoke.yaml`
took 5.66 to 5.77 each, on an AMD EPYC with torch 2.13.0 and deepspeed 0.19.8."""


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def start_up_seconds(ranks: int) -> float:
    """Return how long CPU ranks take to start where these cores do nothing else."""
    return _START_UP_CPU_SECONDS * max(1.0, ranks / cores())


def max_cpu_ranks() -> int:
    """Return how many CPU ranks fit the free memory and the cores this process may use, two at least."""
    by_memory = int(0.8 * psutil.virtual_memory().available // _BYTES_A_RANK)
    return max(2, min(by_memory, _RANKS_A_CORE * cores()))
