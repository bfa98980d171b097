"""Trains a tiny model on one rank under each way to recompute and writes what was run and kept, as JSON.

Run as a process: the engines, their groups and the accelerator are of a whole process.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dsforge.plan.types import Plan
from dsforge.records.run_dir import AttemptDir
from dsforge.render.deepspeed_config import deepspeed_config
from dsforge.train import cpu_support, forge, quiet, world
from dsforge.train.batches import Batches
from dsforge.train.context import RankContext
from dsforge.train.samples import Sources
from tests.support.recipes import plan_of

STEPS = 2
MODES = ("none", "selective", "full 1", "full 2", "full 3")
ENGINES = (("module", 0), ("module", 3), ("pipeline", 1))


def make_plan(engine: str, zero: int, mode: str) -> Plan:
    """Return a plan of four layers on one rank; a pipeline of one stage, which no recipe asks for."""
    recompute, _, every = mode.partition(" ")
    train = {"recompute": recompute, "recompute_every": int(every or 1), "steps": STEPS, "precision": "fp32"}
    changes = {
        "cluster": {"gpus_per_node": 1, "gpu": "cpu"},
        "parallel": {"tp": 1, "pp": 1, "dp": 1, "zero": zero},
        "batch": {"global": 4, "micro": 2, "seq_len": 32},
        "train": train | {"dropout": 0.1, "attention_dropout": 0.1},
        "optimizer": {"lr": 1e-3, "lr_schedule": "constant", "warmup_steps": 0},
    }
    plan = plan_of(changes)
    return plan.model_copy(update={"layout": plan.layout.model_copy(update={"engine": engine})})


def batches(plan: Plan) -> Batches:
    """Yield the same random micro-batches for every plan."""
    generator = torch.Generator().manual_seed(0)
    micro = plan.batch.micro
    for first in range(0, plan.train.steps * plan.batch.global_size, micro):
        samples = torch.randint(plan.model.vocab, (micro, plan.batch.seq_len + 1), generator=generator)
        yield (samples[:, :-1], torch.arange(first, first + micro)), samples[:, 1:].contiguous()


@contextmanager
def counted(module: torch.nn.Module) -> Iterator[dict[str, int]]:
    """Count forward passes of layers and of attentions, and the bytes of activations that are kept."""
    from dsforge.train.attention import CausalAttention
    from dsforge.train.layers import Layer

    counts = {"layers": 0, "attentions": 0, "kept_bytes": 0}

    def counting(name: str) -> Any:
        def count(*_call: Any) -> None:
            counts[name] += 1

        return count

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            counts["kept_bytes"] += tensor.numel() * tensor.element_size()
        return tensor

    for child in module.modules():
        if isinstance(child, Layer):
            child.register_forward_pre_hook(counting("layers"))
        elif isinstance(child, CausalAttention):
            draw, count = child._dropped, counting("attentions")
            child._dropped = lambda *inputs, draw=draw, count=count: (count(), draw(*inputs))[1]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield counts


def train(plan: Plan, groups: world.Groups, folder: Path) -> dict[str, Any]:
    """Return losses, gradient norms and counts of a run of one plan."""
    context = RankContext(
        plan=plan,
        ds_config=deepspeed_config(plan),
        rank=0,
        local_rank=0,
        world_size=1,
        attempt=AttemptDir(folder),
        attempt_number=1,
        run_id="",
        checkpoint_dir=folder,
        root=folder,
        disk=None,
        sources=Sources((), ()),
        dump_dir=None,
    )
    engine = forge.build(context, groups, torch.device("cpu"), restored=False)
    data = batches(plan)
    with counted(engine.deepspeed.module) as counts:
        results = [engine.step(data, plan.optimizer.lr) for _ in range(STEPS)]
    return counts | {"losses": [r.loss for r in results], "grad_norms": [r.grad_norm for r in results]}


def main() -> None:
    """Write {engine: {mode: figures}} into the file that is named."""
    device = cpu_support.choose_device("cpu", 0)
    quiet.filter_warnings()
    import deepspeed

    cpu_support.import_uncompiled(device, "dsforge.train.layers")
    cpu_support.skip_shared_memory_build(device)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        groups = forge.make_groups(make_plan("module", 0, "none").layout)
        found = {
            f"{engine} {zero}": {
                mode: train(make_plan(engine, zero, mode), groups, Path(folder)) for mode in MODES
            }
            for engine, zero in ENGINES
        }
    Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
