"""Two stages, processes of this machine, that train a plan with the megatron-core trainer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dsforge.plan.types import Plan
from dsforge.records.run_dir import AttemptDir
from dsforge.train import megatron_core
from dsforge.train.batches import micro_batches
from dsforge.train.context import RankContext
from dsforge.train.samples import Sources
from dsforge.train.schedule import learning_rate
from dsforge.train.world import coordinates
from tests.support.replica_ranks import SMALL_SCALE, Text, checked


def train(rank: int, folder: Path, plan: Plan) -> None:
    """Train a plan on this rank; rank 0 writes told.json.

    Half-way the engine saves, and a second one loads from there: the rest is trained twice.
    """
    torch.set_num_threads(1)
    device, half = torch.device("cpu"), plan.train.steps // 2
    megatron_core.import_libraries(device)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=plan.layout.world_size
    )
    groups = megatron_core.make_groups(plan.layout)
    context = RankContext(
        plan=plan,
        ds_config={},
        rank=rank,
        local_rank=rank,
        world_size=plan.layout.world_size,
        attempt=AttemptDir(folder),
        attempt_number=1,
        run_id="",
        checkpoint_dir=folder,
        root=folder,
        disk=None,
        sources=Sources((), ()),
        dump_dir=None,
    )
    first = megatron_core.build(context, groups, device, restored=False)
    checks = checked(first, context)
    steps = _steps(first, plan, range(half))
    checks.parameters(half, is_kept=True)
    if first._scale is not None:
        first._scale.value = SMALL_SCALE
    first.save_files(folder)
    dist.barrier()
    steps += _steps(first, plan, range(half, plan.train.steps))
    second = megatron_core.build(context, groups, device, restored=True)
    second.load_files(folder)
    again = _steps(second, plan, range(half, plan.train.steps))
    overflow = _overflow(second, first, plan) if second._scale is not None else None
    before = [float(loss) for loss in second.micro_losses]
    text = micro_batches(Text(plan), plan, replica_of(plan), range(1))  # type: ignore[arg-type]  # samples by id, too
    losses = [one.evaluate(text, 1) for one in (second,)]
    if rank == 1:
        own = {"before": before, "after": [float(loss) for loss in second.micro_losses]}
        (folder / "own.json").write_text(json.dumps(own))
    if rank == 0:
        told = {
            "checked": checks.made,
            "steps": steps,
            "again": again,
            "overflow": overflow,
            "validation": losses,
        }
        (folder / "told.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def _steps(engine: Any, plan: Plan, steps: range) -> list[list[float]]:
    batches = micro_batches(Text(plan), plan, replica_of(plan), steps)  # type: ignore[arg-type]  # samples by id, too
    made = (engine.step(batches, learning_rate(step, plan.train.steps, plan.optimizer)) for step in steps)
    return [[result.loss, result.grad_norm, result.loss_scale] for result in made]


def _overflow(engine: Any, calm: Any, plan: Plan) -> dict[str, Any]:
    """Take a step in which the gradient of an expert overflows on one rank, and tell what it changed.

    `calm`: an engine that is where this one was; both then go on.
    """
    before = {name: weight.detach().clone() for name, weight in engine.parameters.items()}
    scale = engine._scale.value
    expert = next(weight for name, weight in engine.parameters.items() if ".experts." in name)
    spoil = expert.register_hook(lambda gradient: gradient.fill_(math.inf) if dist.get_rank() else gradient)
    batches = micro_batches(Text(plan), plan, replica_of(plan), range(1))  # type: ignore[arg-type]  # samples by id, too
    result = engine.step(batches, plan.optimizer.lr)
    spoil.remove()
    return {
        "skipped": result.skipped,
        "same_weights": all(torch.equal(before[name], now) for name, now in engine.parameters.items()),
        "scales": [scale, engine._scale.value],
        "after": [[loss, norm] for loss, norm, _ in _steps(engine, plan, range(3))],
        "without": [[loss, norm] for loss, norm, _ in _steps(calm, plan, range(3))],
    }


def replica_of(plan: Plan) -> int:
    """Return which replica this rank is of."""
    return coordinates(dist.get_rank(), plan.layout).replica
