"""Ranks that sum over gloo; after two steps the data of the last one is late by some seconds, or broken."""

from __future__ import annotations

import sys
import time
import traceback

import torch
import torch.distributed as dist

CODE = 7
"""What a rank ends with whose data is broken: 0 seconds late."""


def read(step: int, batch: int, seconds: int) -> torch.Tensor:
    if step > 2 and dist.get_rank() == dist.get_world_size() - 1:
        time.sleep(seconds)
        if seconds == 0:
            raise ValueError("bad shard")
    return torch.ones(batch)


def main() -> None:
    steps, batch, seconds = map(int, sys.argv[1:])
    dist.init_process_group("gloo")
    for step in range(1, steps + 1):
        try:
            loss = read(step, batch, seconds)
        except ValueError:
            traceback.print_exc()
            sys.exit(CODE)
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            sys.stdout.write(f"step {step} loss {loss.mean().item()}\n")
        time.sleep(0.1)


main()
