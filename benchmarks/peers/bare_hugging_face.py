"""Hugging Face's model under DeepSpeed, as both document it: the launcher, one configuration, one loop."""

from __future__ import annotations

import json

import deepspeed
import torch
from gpt import parameter_groups
from job import read_job
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM


def main() -> None:
    job, choice = read_job()
    deepspeed.init_distributed()
    plan = job.plan
    values = dict(plan["model"]["hf_config"])
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=parameter_groups(model, plan["optimizer"]["weight_decay"]),
        config=json.loads(choice.ds_config.read_text()),
    )
    count = plan["batch"]["accumulation_steps"]
    for _ in range(plan["train"]["steps"]):
        total = torch.zeros(())
        for _ in range(count):
            tokens, labels = job.batch()
            logits = engine(input_ids=tokens, use_cache=False).logits
            loss = functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
            engine.backward(loss)
            engine.step()
            total += loss.detach()
        job.record(total.item() / count)


if __name__ == "__main__":
    main()
