"""The `forge` trainer: megatron-core's tensor-parallel layers trained by the DeepSpeed engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from dsforge.plan.types import Layout, Plan
from dsforge.train import cpu_support, deepspeed_library, initial, quiet, world
from dsforge.train.context import RankContext
from dsforge.train.parameters import model_parameters

if TYPE_CHECKING:
    from dsforge.train.engine import Engine


def import_libraries(device: torch.device) -> None:
    """Import DeepSpeed and the layers."""
    deepspeed_library.load(device)
    cpu_support.import_uncompiled(device, "dsforge.train.layers")


def make_groups(layout: Layout) -> world.Groups:
    """Return the groups of a rank; every rank must call it."""
    from megatron.core import parallel_state

    deepspeed_library.join()
    # To megatron-core the stages look like replicas: only its tensor-parallel group is used.
    parallel_state.initialize_model_parallel(layout.tp, create_gloo_process_groups=False)
    tensor = parallel_state.get_tensor_model_parallel_group()
    return world.Groups(
        topology=world.topology(layout),
        shard=tensor.rank(),
        tensor=tensor,
        context=parallel_state.get_context_parallel_group(),
    )


def build(context: RankContext, groups: world.Groups, device: torch.device, *, restored: bool) -> Engine:
    """Return the engine with this rank's part of the model, its weights as every layout starts them."""
    from dsforge.train import core_on_cpu
    from dsforge.train.engine import Engine
    from dsforge.train.loss import token_loss
    from dsforge.train.model import build_module
    from dsforge.train.named import global_parameters

    plan = context.plan
    model, tp, shard = plan.model, plan.layout.tp, groups.shard
    core_on_cpu.prepare(device)
    specs = {spec.name: spec for spec in model_parameters(model)}
    loss = token_loss(model.vocab, model.padded_vocab, tp, shard)
    with quiet.no_chatter():
        module = build_module(plan, groups, loss)
    parameters = global_parameters(module, specs)
    if not restored:
        initial.fill(parameters, specs, plan, shard)
    return Engine(module, parameters, plan, ds_config=context.ds_config, groups=groups, device=device)


def global_tensors(tensors: Mapping[str, torch.Tensor], plan: Plan) -> dict[str, torch.Tensor]:  # noqa: ARG001 - every trainer's signature
    """Return the tensors as they are: the layers' parameters have global names."""
    return dict(tensors)
