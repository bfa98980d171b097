"""Hugging Face's model under `fully_shard`, as PyTorch documents it: block by block, then the root."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from gpt import parameter_groups
from job import read_job
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM


def main() -> None:
    job, _ = read_job()
    plan, options = job.plan, job.plan["optimizer"]
    dist.init_process_group("gloo")
    values = dict(plan["model"]["hf_config"])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    low = torch.bfloat16 if plan["train"]["precision"] == "bf16" else None
    policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32)
    for block in model.transformer.h:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(
        parameter_groups(model, options["weight_decay"]),
        lr=options["lr"],
        betas=options["betas"],
        eps=options["eps"],
        fused=True,
    )
    count = plan["batch"]["accumulation_steps"]
    for _ in range(plan["train"]["steps"]):
        total = torch.zeros(())
        for _ in range(count):
            tokens, labels = job.batch()
            logits = model(input_ids=tokens, use_cache=False).logits
            loss = functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten()) / count
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), options["grad_clip"])
        optimizer.step()
        optimizer.zero_grad()
        if os.environ["RANK"] == "0":
            job.record(total.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
