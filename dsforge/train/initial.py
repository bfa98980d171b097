"""The same first weights for every layout: drawn whole on the CPU, then cut.

Deviation: `init_std`; projections into the residual stream `init_std / sqrt(2 x layers)` (GPT-2, Radford
et al. 2019, section 2.3, and Megatron-LM, Shoeybi et al. 2019, section 4).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch

from dsforge.plan.types import Model, Plan
from dsforge.train import slicing
from dsforge.train.parameters import ParameterSpec


def draw(spec: ParameterSpec, model: Model, seed: int) -> torch.Tensor:
    """Return the full fp32 tensor of a parameter, without padding, from (seed, global name) alone."""
    if spec.kind == "one":
        return torch.ones(spec.shape)
    if spec.kind == "zero":
        return torch.zeros(spec.shape)
    digest = hashlib.sha256(f"{seed}:{spec.name}".encode()).digest()
    generator = torch.Generator("cpu").manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    deviation = model.init_std
    if spec.kind == "output":
        deviation /= math.sqrt(2 * model.layers)
    return torch.empty(spec.shape).normal_(0.0, deviation, generator=generator)


@torch.no_grad()
def fill(
    parameters: Mapping[str, torch.nn.Parameter],
    specs: Mapping[str, ParameterSpec],
    plan: Plan,
    shard: int,
) -> None:
    """Overwrite a rank's parameters (global name to shard) with their cut of the drawn tensors."""
    for name, parameter in parameters.items():
        spec = specs[name]
        full = draw(spec, plan.model, plan.train.seed)
        if spec.padded_rows is not None:
            full = slicing.pad_rows(full, spec.padded_rows)
        shards = plan.layout.expert_tp if spec.of_expert else plan.layout.tp
        parameter.copy_(slicing.cut(full, spec.partition_dim, spec.partition_stride, shards, shard))
