"""Two ranks that sum over gloo; after two steps the data of rank 1 takes some seconds to come."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist


def read(step: int, batch: int, seconds: int) -> torch.Tensor:
    if step > 2 and dist.get_rank() == 1:
        time.sleep(seconds)
    return torch.ones(batch)


def main() -> None:
    steps, batch, seconds = map(int, sys.argv[1:])
    dist.init_process_group("gloo")
    for step in range(1, steps + 1):
        loss = read(step, batch, seconds)
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            sys.stdout.write(f"step {step} loss {loss.mean().item()}\n")
        time.sleep(0.1)


main()
