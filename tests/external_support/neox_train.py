"""Stands in for GPT-NeoX's train.py: takes the configuration as it does, then prints its log lines.

`seen-RANK.json` is written beside this file.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from pathlib import Path

import pkg_resources as absent  # the setuptools of today have it no more: a stand-in serves it
import torch

from tests.external_support.neox import data_parallel, deepspeed_config, settings_of

STARRED = "-" * 100


def main() -> None:
    options = argparse.ArgumentParser(allow_abbrev=False)
    options.add_argument("--megatron_config")
    options.add_argument("--deepspeed_config")
    given, rest = options.parse_known_args()
    configuration = json.loads(base64.urlsafe_b64decode(given.megatron_config).decode("utf-8"))
    made = settings_of(configuration)
    rank, local_rank, size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    if size != made["global_num_gpus"]:
        raise SystemExit(f"{size} ranks, {made['global_num_gpus']} were said")
    seen = {
        "world": [rank, local_rank, size, os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]],
        "rest": rest,
        "autotuning": given.deepspeed_config,
        "configuration": configuration,
        "deepspeed": deepspeed_config(made),
        "data_parallel": data_parallel(made),
        "absent": absent.__name__,
    }
    Path(__file__).with_name(f"seen-{rank}.json").write_text(json.dumps(seen))
    met = meet(made)
    if rank == 0:
        for line in log(made, met):
            sys.stdout.write(line + "\n")


def meet(made: dict[str, object]) -> int:
    """Set up as the program does, with CUDA's names, and return the sum of the ranks' numbers from 1."""
    if not torch.cuda.is_available():
        raise SystemExit("Megatron requires CUDA.")
    device = int(os.environ["RANK"]) % torch.cuda.device_count()
    if device != int(os.environ["LOCAL_RANK"]):
        raise SystemExit("expected local-rank to be the same as rank % device-count.")
    torch.cuda.set_device(device)
    torch.distributed.init_process_group(str(made["distributed_backend"]))
    number = torch.cuda.LongTensor([torch.distributed.get_rank() + 1])
    torch.distributed.all_reduce(number)
    torch.cuda.synchronize()
    weights = torch.zeros(2, device=torch.cuda.current_device()).cuda(torch.cuda.current_device())
    torch.distributed.destroy_process_group()
    return int(number.item() + weights.sum().item())


def log(made: dict[str, object], met: int) -> list[str]:
    """Return the lines of rank 0: an ordinary step, one that fp16 skipped, one whose loss is no number."""
    steps = int(str(made["train_iters"]))
    lines = ["NeoXArgs.configure_distributed_args() using world size: 2 and model-parallel size: 1 "]
    lines += ["> initializing torch distributed ...", f"> setting random seeds to {met} ..."]
    for step in range(1, steps + 1):
        skipped, loss = int(step == 2), 0.0 if step == 2 else float("nan") if step == 3 else 8 / step
        line = f" samples/sec: {32:.3f} | iteration {step:8d}/{steps:8d} |"
        line += f" elapsed time per iteration (ms): {250:.1f} | learning rate: {3e-4:.3E} |"
        line += f" approx flops per GPU: 1.2GFLOPS | lm_loss: {loss:.6E} | loss scale: {65536:.1f} |"
        lines.append(line + f" number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |")
        lines.append("time (ms) | forward: 100.00 | backward: 120.00 | optimizer: 30.00")
    for where in (f"iteration {steps}", "the end of training for val data"):
        lines += [
            STARRED,
            f" validation results at {where} | lm_loss value: {2.5:.6E} | lm_loss_ppl value: {12.2:.6E} | ",
            STARRED,
        ]
    return lines


main()
