"""The same model under DeepSpeed, as its documentation shows it: the launcher and one configuration."""

from __future__ import annotations

import json

import deepspeed
import torch
from gpt import GPT, parameter_groups
from job import read_job


def main() -> None:
    job, choice = read_job()
    deepspeed.init_distributed()
    plan = job.plan
    model = GPT(plan["model"], plan["batch"]["seq_len"])
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=parameter_groups(model, plan["optimizer"]["weight_decay"]),
        config=json.loads(choice.ds_config.read_text()),
    )
    count = plan["batch"]["accumulation_steps"]
    for _ in range(plan["train"]["steps"]):
        total = torch.zeros(())
        for _ in range(count):
            loss = engine(*job.batch())
            engine.backward(loss)
            engine.step()
            total += loss.detach()
        job.record(total.item() / count)


if __name__ == "__main__":
    main()
