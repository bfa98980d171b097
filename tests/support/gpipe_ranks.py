"""Two stages, processes of this machine, that train with the forge trainer under each of its schedules."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dsforge.plan.types import Plan
from dsforge.records.run_dir import AttemptDir
from dsforge.render.deepspeed_config import deepspeed_config
from dsforge.train import cpu_support, forge, quiet
from dsforge.train.batches import micro_batches
from dsforge.train.context import RankContext
from dsforge.train.samples import Sources
from tests.support.replica_ranks import Text


def train(rank: int, folder: Path, plans: dict[str, Plan]) -> None:
    """Train half the steps by each plan and save; then go on by each from what each saved. Every rank tells.

    Of each half by a plan: losses, gradient norms, the passes of a step in order, and the loss of a
    validation behind it.
    """
    os.environ["LOCAL_RANK"] = str(rank)  # the engine asks the launcher's variables for it
    torch.set_num_threads(1)
    device = cpu_support.choose_device("cpu", rank)
    quiet.filter_warnings()
    forge.import_libraries(device)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    first = next(iter(plans.values()))
    half = first.train.steps // 2
    groups = forge.make_groups(first.layout)
    engines = {}
    told: dict[str, Any] = {}
    for name, plan in plans.items():
        context = RankContext(
            plan=plan,
            ds_config=deepspeed_config(plan),
            rank=rank,
            local_rank=rank,
            world_size=2,
            attempt=AttemptDir(folder),
            attempt_number=1,
            run_id="",
            checkpoint_dir=folder,
            root=folder,
            disk=None,
            sources=Sources((), ()),
            dump_dir=None,
        )
        engines[name] = forge.build(context, groups, device, restored=False)
    told: dict[str, Any] = {}
    for name, engine in engines.items():
        told[name] = {"from the start": _half(engine, plans[name], range(half))}
        (folder / name).mkdir(exist_ok=True)
        engine.save_files(folder / name)
        dist.barrier()
    for name, engine in engines.items():
        for saved in plans:
            engine.load_files(folder / saved)
            told[name][f"after {saved}"] = _half(engine, plans[name], range(half, first.train.steps))
    (folder / f"{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def _half(engine: Any, plan: Plan, steps: range) -> dict[str, Any]:
    passes: list[str] = []
    module = engine.deepspeed.module
    weight = next(iter(module.parameters()))
    hooks = [
        module.register_forward_hook(lambda *_call: passes.append("F")),
        weight.register_hook(lambda _gradient: passes.append("B")),
    ]
    batches = _text(plan, steps)
    results = [engine.step(batches, plan.optimizer.lr) for _ in steps]
    for hook in hooks:
        hook.remove()
    return {
        "losses": [result.loss for result in results],
        "grad_norms": [result.grad_norm for result in results],
        "passes": "".join(passes[: len(passes) // len(steps)]),
        "validation": engine.evaluate(_text(plan, range(1)), 1),
    }


def _text(plan: Plan, steps: range) -> Any:
    return micro_batches(Text(plan), plan, 0, steps)  # type: ignore[arg-type]  # samples by id, too
