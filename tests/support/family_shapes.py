"""A small shape of each family, weights and text for it, and how far gradients are from the reference's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dsforge.plan.types import Model, Plan
from dsforge.train import cpu_support, megatron_core, reference_model, slicing
from dsforge.train.deepspeed_library import load
from dsforge.train.parameters import ParameterSpec, model_parameters
from dsforge.train.world import Groups
from tests.support.families import LENGTH, SHAPES, VOCAB, layered
from tests.support.recipes import plan_of

CPU = torch.device("cpu")
SAMPLES = torch.randint(VOCAB, (3, LENGTH + 1), generator=torch.Generator().manual_seed(5))
TOKENS, LABELS, IDS = SAMPLES[:, :-1], SAMPLES[:, 1:], torch.arange(3)
Measured = tuple[float, Mapping[str, torch.Tensor]]
"""A loss, and its gradients by global name."""


def plan_for(family: str, trainer: str, **parallel: Any) -> Plan:
    """Return the plan of a family's shape, on one rank unless `parallel` says more."""
    degrees = {"tp": 1, "pp": 1, "dp": 1, "zero": 0, **parallel}
    return plan_of(
        {"trainer": trainer, "cluster": {"gpus_per_node": degrees["tp"]}, "parallel": degrees},
        {"model": {"layers": 2, "vocab": VOCAB, **SHAPES[family]}, "batch": {"seq_len": LENGTH}},
    )


def restless(model: Model) -> dict[str, torch.Tensor]:
    """Return weights of which no bias is 0 and no norm scales by 1."""
    generator = torch.Generator().manual_seed(3)
    return {
        name: weight + 0.1 * torch.empty_like(weight).normal_(generator=generator)
        for name, weight in reference_model.first_weights(model, 1).items()
    }


def by_reference(model: Model, weights: Mapping[str, torch.Tensor]) -> Measured:
    """Return what the reference measures."""
    own = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    logits = reference_model.logits(model, own, TOKENS)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), LABELS.flatten())
    loss.backward()
    return loss.item(), {name: weight.grad for name, weight in own.items() if weight.grad is not None}


def join(rank: int, store: Path, tp: int) -> Groups:
    """Import the layers and return the groups of a world of `tp` ranks."""
    cpu_support.choose_device("cpu", 0)
    load(CPU)
    megatron_core.import_libraries(CPU)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=tp)
    return megatron_core.make_groups(plan_for("llama", "forge", tp=tp).layout)


def by_layers(plan: Plan, groups: Groups, weights: Mapping[str, torch.Tensor]) -> Measured:
    """Return what this rank's layers measure of its shards of whole weights."""
    from dsforge.train import core_on_cpu
    from dsforge.train.core_model import make_chunks
    from dsforge.train.loss import token_loss
    from dsforge.train.model import build_module
    from dsforge.train.named import global_parameters

    specs = {spec.name: spec for spec in model_parameters(plan.model)}
    loss_of = token_loss(VOCAB, plan.model.padded_vocab, plan.layout.tp, groups.shard)
    with_loss = plan.trainer == "forge"
    if with_loss:
        module = build_module(plan, groups, loss_of)
    else:
        core_on_cpu.prepare(CPU)
        (module,) = make_chunks(plan, groups, plan.layout.stages[0])
    held = global_parameters(module, specs)
    assert held.keys() == weights.keys()
    with torch.no_grad():
        for name, parameter in held.items():
            parameter.copy_(shard_of(weights[name], specs[name], plan, groups.shard))
    loss = module((TOKENS, IDS), LABELS) if with_loss else loss_of(module(TOKENS, IDS), LABELS)
    loss.backward()
    for parameter in held.values():
        if getattr(parameter, "sequence_parallel", False):
            # What its engine does before the step.
            dist.all_reduce(parameter.grad)
    return loss.item(), {name: one.grad for name, one in held.items()}


def shard_of(whole: torch.Tensor, spec: ParameterSpec, plan: Plan, shard: int) -> torch.Tensor:
    """Return a shard's part of a whole tensor."""
    padded = slicing.pad_rows(whole, spec.padded_rows or whole.shape[0])
    return slicing.cut(padded, spec.partition_dim, spec.partition_stride, plan.layout.tp, shard)


def largest_difference(
    found: Measured, expected: Measured, plan: Plan, shard: int = 0
) -> tuple[float, float]:
    """Return by how much a rank's loss and gradients differ from whole ones."""
    specs = {spec.name: spec for spec in model_parameters(plan.model)}
    assert found[1].keys() == expected[1].keys() == specs.keys()
    worst = max(
        (gradient - shard_of(expected[1][name], specs[name], plan, shard)).abs().max().item()
        for name, gradient in found[1].items()
    )
    return abs(found[0] - expected[0]), worst


def measure(rank: int, folder: Path) -> None:
    """Write shard RANK.json: by family and trainer how far this of two shards is from the reference."""
    torch.set_num_threads(1)
    groups = join(rank, folder / "store", 2)
    told: dict[str, tuple[float, float]] = {}
    for family in SHAPES:
        for trainer in layered(family):
            plan = plan_for(family, trainer, tp=2, sequence_parallel=trainer == "megatron-core")
            weights = restless(plan.model)
            found, expected = by_layers(plan, groups, weights), by_reference(plan.model, weights)
            told[f"{family} {trainer}"] = largest_difference(found, expected, plan, rank)
    (folder / f"{rank}.json").write_text(json.dumps(told), "utf-8")
    dist.destroy_process_group()
