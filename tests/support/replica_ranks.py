"""Two ranks, processes of this machine, that train plans with the trainers of PyTorch's own replicas."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from dsforge.catalog.engines.capabilities import capabilities
from dsforge.plan.types import Plan
from dsforge.records.run_dir import AttemptDir
from dsforge.render.deepspeed_config import deepspeed_config
from dsforge.train.batches import micro_batches
from dsforge.train.checks import Checks
from dsforge.train.context import RankContext, on_disk
from dsforge.train.dump import whole_shards
from dsforge.train.engine_protocol import Engine
from dsforge.train.held import held
from dsforge.train.loss_scale import LossScale
from dsforge.train.main import trainer_module
from dsforge.train.recorder import Recorder
from dsforge.train.samples import Sources
from dsforge.train.schedule import learning_rate
from dsforge.train.torch_engine import TorchEngine
from dsforge.train.world import Groups, coordinates, topology

REPLICAS = 2
_GROUPS: dict[tuple[str, int], Groups] = {}
FAR_TOO_LARGE = 2.0**60
SMALL_SCALE = 2.0**12
"""Other than the first, so that whoever goes on from a checkpoint must have it from there."""


class Text:
    """Samples of a text that repeats itself, by id."""

    def __init__(self, plan: Plan) -> None:
        self._vocab, self._length = plan.model.vocab, plan.batch.seq_len + 1

    def sample(self, sample_id: int) -> np.ndarray:
        """Return tokens of a sample: a walk whose stride is the sample's."""
        return (np.arange(self._length) * (1 + sample_id % 5) + sample_id) % self._vocab


def train(rank: int, folder: Path, plans: dict[str, Plan]) -> None:
    """Train each plan on this rank; rank 0 writes NAME.json with the losses and norms.

    Half-way the engine saves into NAME and a new one loads from there; the rest is trained twice, from here
    and from there.
    """
    torch.set_num_threads(1)
    # What DeepSpeed reads itself.
    os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": str(rank)}
    if any(not capabilities(plan.trainer).computes(plan.train.precision, "cpu") for plan in plans.values()):
        _let_deepspeed_take_fp16()
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=REPLICAS)
    for name, plan in plans.items():
        half = plan.train.steps // 2
        context = context_of(rank, folder, plan)
        engine = _build(context, restored=False)
        if plan.train.precision == "fp16":
            # Whatever such a step leaves behind, the others would show.
            overflowed = _overflow(engine, plan, rank)
            if rank == 0:
                (folder / f"{name}-overflow.json").write_text(json.dumps(overflowed))
            _use_scale(engine, SMALL_SCALE)
        checks = checked(engine, context)
        gradients: list[int] = []
        if isinstance(engine, TorchEngine):
            engine.before_update = _weighing(engine, gradients)
        results = _steps(engine, plan, rank, range(half))
        checks.parameters(half, is_kept=True)
        (folder / name).mkdir(exist_ok=True)
        engine.save_files(folder / name)
        dist.barrier()
        rest = _steps(engine, plan, rank, range(half, plan.train.steps))
        # An engine empties the folder that it puts its parameters in.
        again = _build(context_of(rank, folder, plan, "resumed-disk"), restored=True)
        again.load_files(folder / name)
        resumed = _steps(again, plan, rank, range(half, plan.train.steps))
        ends = [whole_shards(one.parameters) for one in (engine, again)]
        if rank == 0:
            told = {
                "steps": results + rest,
                "resumed": resumed,
                "checked": checks.made,
                "held": _held_bytes(engine) | {"gradients": max(gradients)} if gradients else {},
                "same_weights": all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0]),
            }
            (folder / f"{name}.json").write_text(json.dumps(told))
        if (folder / alone(name)).is_dir():
            again.load_files(folder / alone(name))
            joined = _steps(again, plan, rank, range(half, plan.train.steps))
            if rank == 0:
                (folder / f"{alone(name)}.json").write_text(json.dumps(joined))
        if plan.layout.pp > 1:
            continue  # a rank has no second layer
        lost = _lost(engine, checks, plan, rank)
        if rank == 0:
            (folder / f"{name}-lost.json").write_text(json.dumps(lost))
    dist.destroy_process_group()


def alone(name: str) -> str:
    """Return what the first half of a plan is called that one rank trains."""
    return f"{name}-alone"


@contextmanager
def one_rank() -> Iterator[None]:
    """Make this process the only rank of a world."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def begin_alone(folder: Path, name: str, plan: Plan) -> None:
    """Train the first half of a plan as the only rank, and save it."""
    with one_rank():
        engine = _build(context_of(0, folder, plan), restored=False)
        _steps(engine, plan, 0, range(plan.train.steps // 2))
        (folder / alone(name)).mkdir()
        engine.save_files(folder / alone(name))


def end_alone(folder: Path, name: str, plan: Plan) -> list[dict[str, Any]]:
    """Return the steps of the second half of a plan as the only rank, from what two ranks saved."""
    with one_rank():
        engine = _build(context_of(0, folder, plan), restored=True)
        engine.load_files(folder / name)
        return _steps(engine, plan, 0, range(plan.train.steps // 2, plan.train.steps))


def _weighing(engine: TorchEngine, gradients: list[int]) -> Callable[[], None]:
    """Return what an engine does before its update, and notes the bytes of this rank's gradients."""
    before = engine.before_update

    def weigh() -> None:
        gradients.append(_bytes(p.grad for p in engine.parameters.values() if p.grad is not None))
        before()

    return weigh


def _held_bytes(engine: Any) -> dict[str, int]:
    """Return the bytes of this rank's weights and of what its optimizer keeps of them."""
    states = (value for state in engine._optimizer.state.values() for value in state.values() if value.dim())
    return {"parameters": _bytes(engine.parameters.values()), "optimizer": _bytes(states)}


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(held(one).numel() * one.element_size() for one in tensors)


def _lost(engine: Any, checks: Checks, plan: Plan, rank: int) -> dict[str, Any]:
    """Spoil a weight of the second layer, take a step, and tell where something was first not finite."""
    spoilt = next(name for name in engine.parameters if "1.mlp" in name and name.endswith(".weight"))
    _spoil(engine.parameters[spoilt])
    engine._scale = None
    checks.begin(1)
    _steps(engine, plan, rank, range(1))
    assert checks.watch is not None
    sight, gradient = checks.watch.first(), checks.watch.last_gradient()
    assert sight is not None
    return {"spoilt": spoilt, "module": sight.module, "micro": sight.micro, "gradient": gradient is not None}


@torch.no_grad()
def _spoil(parameter: torch.nn.Parameter) -> None:
    if not hasattr(parameter, "ds_id"):
        held(parameter).fill_(float("nan"))
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(parameter, modifier_rank=0):
        parameter.fill_(float("nan"))


def _overflow(engine: Any, plan: Plan, rank: int) -> dict[str, Any]:
    """Take a first step whose gradients overflow, and tell what it changed."""
    before = whole_shards(engine.parameters)
    _use_scale(engine, FAR_TOO_LARGE)
    (step,) = _steps(engine, plan, rank, range(1))
    after = whole_shards(engine.parameters)
    return {
        **step,
        "next_scale": _scale(engine),
        "same_weights": all(torch.equal(before[name], after[name]) for name in before),
    }


def _let_deepspeed_take_fp16() -> None:
    """Tell DeepSpeed that this CPU computes in fp16: PyTorch does, by whatever instructions there are."""
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    CPU_Accelerator.is_fp16_supported = lambda _self: True


def _use_scale(engine: Any, value: float) -> None:
    if hasattr(engine, "deepspeed"):
        engine.deepspeed.optimizer.loss_scaler.cur_scale = value
    else:
        engine._scale = LossScale(value)


def _scale(engine: Any) -> float:
    return engine.deepspeed.optimizer.loss_scale if hasattr(engine, "deepspeed") else engine._scale.value


def checked(engine: Engine, context: RankContext) -> Checks:
    """Let an engine's ranks compare their gradients before every update."""
    device = torch.device("cpu")
    recorder = Recorder(context.attempt, context.plan, context.rank, device)
    checks = Checks(context, engine, recorder, device, ["here"] * context.world_size)
    engine.before_update = checks.before_update
    return checks


def context_of(rank: int, folder: Path, plan: Plan, disk_name: str = "disk") -> RankContext:
    """Return what a rank is told whose run has its files in a folder."""
    on_deepspeed = capabilities(plan.trainer).deepspeed
    disk = folder / disk_name if plan.offload.path is not None else None
    return RankContext(
        plan=plan,
        ds_config=on_disk(deepspeed_config(plan), disk) if on_deepspeed else {},
        rank=rank,
        local_rank=rank,
        world_size=REPLICAS,
        attempt=AttemptDir(folder),
        attempt_number=1,
        run_id="",
        checkpoint_dir=folder,
        root=folder,
        disk=disk,
        sources=Sources((), ()),
        dump_dir=None,
    )


def _build(context: RankContext, *, restored: bool) -> Engine:
    trainer = trainer_module(context.plan.trainer)
    device = torch.device("cpu")
    trainer.import_libraries(device)
    # A process makes megatron-core's groups once; stages are no matter of theirs.
    layout = context.plan.layout
    key = (context.plan.trainer, layout.tp)
    if key not in _GROUPS:
        _GROUPS[key] = trainer.make_groups(layout)
    groups = _GROUPS[key]
    if capabilities(context.plan.trainer).deepspeed:
        groups = replace(groups, topology=topology(layout))
    engine: Engine = trainer.build(context, groups, device, restored=restored)
    return engine


def _batches(plan: Plan, rank: int, steps: range) -> Any:
    return micro_batches(Text(plan), plan, coordinates(rank, plan.layout).replica, steps)  # type: ignore[arg-type]  # samples by id, too


def _steps(engine: Engine, plan: Plan, rank: int, steps: range) -> list[dict[str, Any]]:
    batches = _batches(plan, rank, steps)
    made = []
    for step in steps:
        result = engine.step(batches, learning_rate(step, plan.train.steps, plan.optimizer))
        made.append(
            {
                "loss": result.loss,
                "grad_norm": result.grad_norm,
                "skipped": result.skipped,
                "scale": result.loss_scale,
            }
        )
    return made
