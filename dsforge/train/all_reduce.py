"""`python -m dsforge.train.all_reduce`: one a rank; sums a tensor over all ranks and tells how fast that was.

Before a run it shows what no look at a host does: that all ranks meet, and that data flows between all.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dsforge.base.canonical import dump_line
from dsforge.base.files import append_line
from dsforge.records import environment
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import Event
from dsforge.train.context import read_plan
from dsforge.train.main import end

EVENT = "all_reduce"
_SIZE_BYTES = {"cpu": 2**22, "cuda": 2**28}
_ROUNDS = 5


def main() -> int:
    """Return 0 when the sum is right on this rank, else 1; torch's errors when ranks do not meet."""
    plan = read_plan(Path(os.environ[environment.PLAN]))
    on_gpu = plan.accelerator == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        timeout=timedelta(seconds=plan.launch.rendezvous_timeout_seconds),
        device_id=device if on_gpu else None,
    )
    rank, world_size = dist.get_rank(), dist.get_world_size()
    tensor = torch.empty(_SIZE_BYTES[device.type] // 4, device=device)
    seconds = float("inf")
    for _ in range(_ROUNDS):
        tensor.fill_(float(rank + 1))
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(tensor)
        if on_gpu:
            torch.cuda.synchronize(device)
        seconds = min(seconds, time.perf_counter() - begun)
    expected = world_size * (world_size + 1) / 2
    if not bool((tensor == expected).all()):
        sys.stderr.write(f"rank {rank}: the sum over all ranks is {tensor.min()} to {tensor.max()}\n")
        return 1
    if rank == 0:
        _tell(bytes=tensor.numel() * 4, seconds=seconds, ranks=world_size)
    dist.barrier()
    return 0


def _tell(**data: Any) -> None:
    attempt = AttemptDir(Path(os.environ[environment.ATTEMPT_DIR]))
    line = Event(time=time.time(), source="trainer", name=EVENT, message="summed over all ranks", data=data)
    append_line(attempt.events, dump_line(line.as_dict()))


if __name__ == "__main__":
    end(main())
