"""The mixture-of-experts MLP of megatron-core: router, dispatch of tokens, whole experts one after another.

No token is dropped.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.moe.moe_layer import MoELayer, MoESubmodules
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.spec_utils import ModuleSpec
from torch import nn
from torch.nn import functional

from dsforge.plan.types import Model, Plan

_LOCAL = re.compile(r"mlp\.experts\.local_experts\.(\d+)\.")


def expert_options(plan: Plan) -> dict[str, Any]:
    """Return what megatron-core's description of a model says of its experts; nothing without any.

    Tokens are sent to the ranks of their experts; on a CPU, where that takes a CUDA stream, to all.
    """
    experts, layout = plan.model.experts, plan.layout
    if experts is None:
        return {}
    return {
        "num_moe_experts": experts.count,
        "moe_ffn_hidden_size": experts.ffn_hidden,
        "moe_router_topk": experts.active,
        # Shares of all experts instead of shares of the chosen.
        "moe_router_pre_softmax": not experts.normalised,
        "moe_router_load_balancing_type": "aux_loss" if plan.train.balance_loss else "none",
        "moe_aux_loss_coeff": plan.train.balance_loss,
        "moe_token_dispatcher_type": "alltoall" if plan.accelerator == "cuda" else "allgather",
        "expert_model_parallel_size": layout.ep,
        "expert_tensor_parallel_size": layout.expert_tp,
    }


def has_experts(model: Model, layer: int) -> bool:
    """Tell whether a layer, counted from 0, has experts."""
    return model.experts is not None and layer not in model.experts.dense_layers


class Router(TopKRouter):
    """megatron-core's router, whose own scoring needs Transformer Engine, though it asks for none."""

    def gating(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return scores [s, b, experts] of hidden states [s, b, h]."""
        return functional.linear(hidden, self.weight)


def expert_mlp() -> ModuleSpec:
    """Return what a layer is told to build in the place of its MLP."""
    linear = MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)
    experts = ModuleSpec(module=SequentialMLP, submodules=linear)
    return ModuleSpec(module=MoELayer, submodules=MoESubmodules(experts=experts, router=Router))


def global_name(name: str, mlp: nn.Module) -> str:
    """Return the name of a layer's parameter, of an expert's with the expert's number among all."""

    def counted(found: re.Match[str]) -> str:
        return f"mlp.experts.{mlp.local_expert_indices[int(found[1])]}."

    return _LOCAL.sub(counted, name)
