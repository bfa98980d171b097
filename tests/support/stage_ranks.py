"""Two ranks, processes of this machine, that build their stages and tell what they hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dsforge.plan.types import Plan
from dsforge.train import forge


def tell_stages(rank: int, folder: Path, plan: Plan) -> None:
    """Write stage-RANK.json: by trainer the layers, whether the head is there, and the parameters."""
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)  # DeepSpeed's pipeline module reads it
    forge.import_libraries(torch.device("cpu"))
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    from dsforge.train.core_model import make_chunks
    from dsforge.train.loss import token_loss
    from dsforge.train.model import build_module

    groups = forge.make_groups(plan.layout)
    loss = token_loss(plan.model.vocab, plan.model.padded_vocab, 1, 0)
    staged = build_module(plan, groups, loss)
    chunks = torch.nn.ModuleList(make_chunks(plan, groups, plan.layout.stages[rank]))
    told = {"forge": _held(staged, plan), "megatron-core": _held(chunks, plan)}
    (folder / f"stage-{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def _held(module: torch.nn.Module, plan: Plan) -> dict[str, Any]:
    from dsforge.train.named import global_parameters
    from dsforge.train.parameters import model_parameters

    specs = {spec.name: spec for spec in model_parameters(plan.model)}
    found = global_parameters(module, specs)
    return {
        "layers": sorted({int(name.split(".")[1]) for name in found if name.startswith("layers.")}),
        "head": "head.weight" in found,
        "parameters": sum(parameter.numel() for parameter in found.values()),
    }
