"""A training loop of PyTorch alone: autocast for bf16, fused AdamW, clipping, the loss logged each step."""

from __future__ import annotations

import torch
from gpt import GPT, parameter_groups
from job import read_job
from torch import nn


def main() -> None:
    job, _ = read_job()
    plan, options = job.plan, job.plan["optimizer"]
    model = GPT(plan["model"], plan["batch"]["seq_len"])
    optimizer = torch.optim.AdamW(
        parameter_groups(model, options["weight_decay"]),
        lr=options["lr"],
        betas=options["betas"],
        eps=options["eps"],
        fused=True,
    )
    count = plan["batch"]["accumulation_steps"]
    low = plan["train"]["precision"] == "bf16"
    for _ in range(plan["train"]["steps"]):
        total = torch.zeros(())
        for _ in range(count):
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                loss = model(*job.batch()) / count
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), options["grad_clip"])
        optimizer.step()
        optimizer.zero_grad()
        job.record(total.item())


if __name__ == "__main__":
    main()
