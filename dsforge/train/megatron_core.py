"""The `megatron-core` trainer: megatron-core's layers, schedules, gradient buffers and optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dsforge.plan.types import Layout, Plan
from dsforge.train import cpu_support, initial, quiet, world
from dsforge.train.context import RankContext
from dsforge.train.parameters import model_parameters

if TYPE_CHECKING:
    from dsforge.train.core_engine import CoreEngine


def import_libraries(device: torch.device) -> None:
    """Import megatron-core."""
    cpu_support.import_uncompiled(device, "dsforge.train.core_engine")


@dataclass(frozen=True, slots=True)
class _Place:
    pipe: int
    data: int


class _Places:
    """This rank's coordinates as megatron-core has given them."""

    def get_coord(self, _rank: int) -> _Place:
        """Return them, for the rank that asks."""
        from megatron.core import parallel_state

        return _Place(
            pipe=parallel_state.get_pipeline_model_parallel_rank(),
            data=parallel_state.get_data_parallel_rank(),
        )


def make_groups(layout: Layout) -> world.Groups:
    """Return the groups of a rank; every rank must call it."""
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(
        layout.tp,
        layout.pp,
        layout.vp if layout.vp > 1 else None,
        context_parallel_size=layout.cp,
        expert_model_parallel_size=layout.ep,
        expert_tensor_parallel_size=layout.expert_tp,
        create_gloo_process_groups=False,
    )
    tensor = parallel_state.get_tensor_model_parallel_group()
    return world.Groups(
        topology=_Places(),
        shard=tensor.rank(),
        tensor=tensor,
        context=parallel_state.get_context_parallel_group(),
        experts={
            "ep": parallel_state.get_expert_model_parallel_group(),
            "expt_tp": parallel_state.get_expert_tensor_parallel_group(),
            "expt_dp": parallel_state.get_expert_data_parallel_group(),
            "tp_ep": parallel_state.get_expert_tensor_and_model_parallel_group(),
            "tp_cp": parallel_state.get_tensor_and_context_parallel_group(),
            "tp_dp_cp": parallel_state.get_tensor_and_data_parallel_group(with_context_parallel=True),
        },
    )


def build(context: RankContext, groups: world.Groups, device: torch.device, *, restored: bool) -> CoreEngine:
    """Return the engine with this rank's part of the model, its weights as every layout starts them."""
    from dsforge.train import core_on_cpu
    from dsforge.train.core_engine import CoreEngine
    from dsforge.train.core_model import make_chunks
    from dsforge.train.loss import token_loss
    from dsforge.train.named import global_parameters

    plan = context.plan
    model, tp = plan.model, plan.layout.tp
    core_on_cpu.prepare(device)
    specs = {spec.name: spec for spec in model_parameters(model)}
    where = world.coordinates(context.rank, plan.layout)
    with quiet.no_chatter():
        chunks = make_chunks(plan, groups, plan.layout.stages[where.stage])
    parameters = {
        name: weight for chunk in chunks for name, weight in global_parameters(chunk, specs).items()
    }
    if not restored:
        initial.fill(parameters, specs, plan, groups.shard)
    for chunk in chunks:
        chunk.to(device=device, dtype=chunk.config.params_dtype)
    loss = token_loss(model.vocab, model.padded_vocab, tp, groups.shard)
    return CoreEngine(chunks, parameters, plan, loss=loss, where=where, device=device)


def global_tensors(tensors: Mapping[str, torch.Tensor], plan: Plan) -> dict[str, torch.Tensor]:  # noqa: ARG001 - every trainer's signature
    """Return the tensors as they are: the layers' parameters have global names."""
    return dict(tensors)
