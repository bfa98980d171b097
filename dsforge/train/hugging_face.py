"""The `transformers` trainer: a Hugging Face model under the DeepSpeed engine.

With TP every rank makes the whole model, and DeepSpeed cuts its linear layers (AutoTP); embedding, head and
norms stay whole.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from dsforge.plan.types import Layout, Plan
from dsforge.train import deepspeed_library, hf_weights, quiet, world
from dsforge.train.balance import Balance, balance_of
from dsforge.train.context import RankContext
from dsforge.train.hf_names import from_hugging_face
from dsforge.train.hf_recompute import attention_name, recompute_blocks
from dsforge.train.precision import DTYPES

if TYPE_CHECKING:
    from dsforge.train.engine import Engine


class WithLoss(nn.Module):
    """A causal language model whose `forward` gives the loss of a micro-batch.

    With a balance loss its gradient is added, and not its value.
    """

    def __init__(self, model: nn.Module, balance: Balance | None = None) -> None:
        super().__init__()
        self.model = model
        self._balance = balance
        self.config = model.config
        """Where DeepSpeed finds the number of heads that it splits."""

    def forward(self, inputs: tuple[torch.Tensor, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss in fp32 of (tokens [b, s], sample ids) and labels, one token ahead already."""
        tokens, _ = inputs
        balance = self._balance if self.training else None
        wanted = {} if balance is None else {"output_router_logits": True}
        out = self.model(input_ids=tokens, use_cache=False, **wanted)
        loss = functional.cross_entropy(out.logits.float().flatten(0, 1), labels.flatten())
        return loss if balance is None else balance.add_gradient(loss, out.router_logits)


def import_libraries(device: torch.device) -> None:
    """Import DeepSpeed, and transformers, which takes seconds."""
    deepspeed_library.load(device)
    importlib.import_module("transformers")


def make_groups(layout: Layout) -> world.Groups:
    """Return the groups of a rank; DeepSpeed makes those that it splits layers in."""
    deepspeed_library.join()
    shard = world.coordinates(torch.distributed.get_rank(), layout).shard
    return world.Groups(topology=world.topology(layout), shard=shard)


def build(context: RankContext, groups: world.Groups, device: torch.device, *, restored: bool) -> Engine:
    """Return the engine with the plan's model; DsforgeError when the weights to start from cannot be used."""
    from dsforge.train.engine import Engine

    plan = context.plan
    with quiet.no_chatter():
        model = make_model(plan, device, context.ds_config)
    if not restored:
        set_weights(model, context)
    recompute_blocks(model, plan.train)
    module, parameters = WithLoss(model, balance_of(plan)), dict(model.named_parameters())
    return Engine(module, parameters, plan, ds_config=context.ds_config, groups=groups, device=device)


def set_weights(model: nn.Module, context: RankContext) -> None:
    """Give a model the weights that its run starts from; every rank must call it.

    DsforgeError where they are to be read and cannot be used.
    """
    plan = context.plan
    if plan.checkpoint.init is not None:
        hf_weights.load(model, plan, context.root / plan.checkpoint.init, context.rank)
    else:
        hf_weights.draw(dict(model.named_parameters()), plan, context.rank)


def make_model(plan: Plan, device: torch.device, ds_config: dict[str, Any]) -> nn.Module:
    """Return the plan's model on a device in the plan's precision, its weights not yet set.

    With ZeRO-3 no rank ever holds more than its share: parameters are dealt out as they are made.
    """
    precision = DTYPES[plan.train.precision]
    return bare_model(plan, precision, _dealt_out(ds_config) if plan.layout.zero == 3 else device)


def bare_model(
    plan: Plan, precision: torch.dtype, where: contextlib.AbstractContextManager[Any]
) -> nn.Module:
    """Return the plan's model in a precision, made `where` says, its weights not yet set."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    assert plan.model.hf_config is not None, "the planner writes it for this trainer"
    # transformers writes into the mappings that it is given.
    values = copy.deepcopy(plan.model.hf_config)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    with no_init_weights(), where:
        model = AutoModelForCausalLM.from_config(
            config, dtype=precision, attn_implementation=attention_name(plan.train)
        )
    # Left out together with the initialisation.
    model.tie_weights()
    return model.train()


@contextlib.contextmanager
def _dealt_out(ds_config: dict[str, Any]) -> Iterator[None]:
    """Let DeepSpeed partition every parameter that is made, and leave the tables of RoPE in fp32."""
    import deepspeed
    from transformers.integrations.deepspeed import prevent_arange_dtype_change

    with prevent_arange_dtype_change(), deepspeed.zero.Init(config_dict_or_path=ds_config):
        yield


def global_tensors(tensors: Mapping[str, torch.Tensor], plan: Plan) -> dict[str, torch.Tensor]:
    """Return the tensors under their global names, fused where those are.

    A shard of the layers is a model of its own, with fewer heads and a narrower MLP.
    """
    model, tp = plan.model, plan.layout.tp
    widths = ("heads", "kv_heads", "ffn_hidden")
    shard = model.model_copy(update={width: getattr(model, width) // tp for width in widths})
    return from_hugging_face(tensors, shard)
