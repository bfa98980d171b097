"""A small convolutional network under DistributedDataParallel, as teams have: prints, saves, goes on."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def images(count: int) -> TensorDataset:
    """Return images of four classes, each bright in a quarter of its own."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.arange(count) % 4
    pixels = torch.rand(count, 1, 8, 8, generator=generator)
    for at, label in enumerate(labels.tolist()):
        row, column = divmod(label, 2)
        pixels[at, 0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1.0
    return TensorDataset(pixels, labels)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, required=True)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--lr", type=float, required=True)
    options.add_argument("--save", type=Path, required=True)
    options.add_argument("--die-at", type=int, default=0)
    given = options.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    network = DistributedDataParallel(
        nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=given.lr)
    saved, first = given.save / "cnn.pt", 0
    if saved.exists():
        state = torch.load(saved)
        network.module.load_state_dict(state["network"])
        first = state["step"]
    data = images(256)
    sampler = DistributedSampler(data, shuffle=False)
    batches = [batch for _ in range(given.steps) for batch in DataLoader(data, given.batch, sampler=sampler)]
    for step in range(first + 1, given.steps + 1):
        pixels, labels = batches[step - 1]
        loss = nn.functional.cross_entropy(network(pixels), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss, op=dist.ReduceOp.SUM)
        if rank == 0:
            mean = loss.item() / dist.get_world_size()
            sys.stdout.write(f"step {step} loss {mean:.6f} lr {given.lr}\n")
            torch.save({"network": network.module.state_dict(), "step": step}, saved)
        dist.barrier()
        if step == given.die_at and first == 0 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()


main()
