"""Trains a small GPT with megatron-core as Megatron-LM's own loop does, on CUDA; prints losses and norms.

Two ranks of TP, dropout from the tracker of random states, DDP, the distributed optimizer. The argument is
a folder: a checkpoint is written there after step 1, and a second model goes on from it.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig

SEQ, VOCAB = 16, 64


def built() -> tuple[Any, Any]:
    config = TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        tensor_model_parallel_size=2,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        finalize_model_grads_func=finalize_model_grads,
    )
    model = GPTModel(config, get_gpt_layer_local_spec(), VOCAB, SEQ).cuda(torch.cuda.current_device())
    of_ddp = DistributedDataParallelConfig(use_distributed_optimizer=True, grad_reduce_in_fp32=True)
    whole = DistributedDataParallel(config, of_ddp, model.bfloat16())
    of_optimizer = OptimizerConfig(
        optimizer="adam", lr=1e-2, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=True
    )
    optimizer = get_megatron_optimizer(of_optimizer, [whole])
    config.grad_scale_func = optimizer.scale_loss
    return whole, optimizer


def forward(samples: Any, model: Any) -> tuple[torch.Tensor, Any]:
    tokens = next(samples)
    here = torch.arange(SEQ, device="cuda").unsqueeze(0)
    mask = torch.ones(1, 1, SEQ, SEQ, dtype=torch.bool, device="cuda").triu(1)

    def mean(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss = output.float().mean()
        return loss, {"loss": loss.detach().clone()}

    return model(tokens, here, mask, labels=tokens.roll(-1, 1)), partial(mean)


def step(number: int, model: Any, optimizer: Any) -> None:
    model.zero_grad_buffer()
    optimizer.zero_grad()
    torch.cuda.manual_seed(number)
    tensor_parallel.model_parallel_cuda_manual_seed(number + 1)
    samples = iter([(torch.arange(SEQ, device="cuda") * 3 + one).unsqueeze(0) % VOCAB for one in (0, 1)])
    losses = get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=samples,
        model=model,
        num_microbatches=2,
        seq_length=SEQ,
        micro_batch_size=1,
        forward_only=False,
    )
    done, norm, _ = optimizer.step()
    assert done
    torch.cuda.synchronize()
    if torch.distributed.get_rank() == 0:
        loss = sum(float(one["loss"]) for one in losses) / 2
        sys.stdout.write(f"{number} {loss!r} {float(norm)!r}\n")


def states(model: Any, optimizer: Any, *, loading: bool) -> dict[str, Any]:
    weights = model.module.sharded_state_dict(prefix="model.")
    kind = {"distrib_optim_sharding_type": "dp_reshardable"}
    asked = optimizer.sharded_state_dict(weights, is_loading=loading, metadata=kind)
    return {"model": weights, "optimizer": asked}


def main(folder: str) -> None:
    assert torch.cuda.is_available()
    torch.cuda.set_device(torch.cuda.current_device())
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    tensor_parallel.model_parallel_cuda_manual_seed(7)
    model, optimizer = built()
    for number in range(2):
        step(number, model, optimizer)
    dist_checkpointing.save(states(model, optimizer, loading=False), folder)
    for number in range(2, 4):
        step(number, model, optimizer)
    model, optimizer = built()
    loaded = dist_checkpointing.load(states(model, optimizer, loading=True), folder)
    model.module.load_state_dict({k.removeprefix("model."): v for k, v in loaded["model"].items()})
    optimizer.load_state_dict(loaded["optimizer"])
    for number in range(2, 4):
        step(number, model, optimizer)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":  # saving starts processes that import this file
    main(sys.argv[1])
