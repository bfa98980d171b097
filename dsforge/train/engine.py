"""The two DeepSpeed engines behind one step: pipeline (PP > 1) and plain module (PP = 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dsforge.plan.types import Plan
from dsforge.records.checkpoint import NotWhole
from dsforge.train import disk, optimizers
from dsforge.train.batches import Batches
from dsforge.train.checkpoint import TAG, load_file
from dsforge.train.engine_protocol import StepResult
from dsforge.train.engine_scale import EngineScale
from dsforge.train.fits import not_whole
from dsforge.train.fused import with_usable_optimizer
from dsforge.train.held import Piece, dealt_out
from dsforge.train.quiet import no_chatter
from dsforge.train.world import Groups


def parameter_groups(parameters: Mapping[str, nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Return two groups: matrices, which decay, and one-dimensional biases and norms, which do not."""
    ordered = list(parameters.values())
    return [
        {"params": [p for p in ordered if _dimensions(p) > 1], "weight_decay": weight_decay},
        {"params": [p for p in ordered if _dimensions(p) <= 1], "weight_decay": 0.0},
    ]


def _dimensions(parameter: nn.Parameter) -> int:
    # ZeRO-3 may have emptied it already; its own shape then stands beside it.
    return len(getattr(parameter, "ds_shape", parameter.shape))


def _reduce_by_value(member: Enum, _protocol: int) -> tuple[type[Enum], tuple[Any]]:
    return type(member), (member.value,)


def make_loadable_without_code() -> None:
    """Keep the engine's enum from being pickled as a call of `getattr`, as Python before 3.11.4 does.

    Files are loaded with `weights_only`, which rightly refuses that call.
    """
    from deepspeed.runtime.zero.config import ZeroStageEnum

    ZeroStageEnum.__reduce_ex__ = _reduce_by_value


def _deal_out(module: nn.Module, plan: Plan, ds_config: dict[str, Any], grid: Any) -> None:
    """Deal an fp32 module out to its replicas' disks, unless it was made so.

    Dealing out what it is given, the engine takes a parameter on the disk for bf16 wherever the accelerator
    has no fp16 (deepspeed 0.19.8, `InsertPostInitMethodToModuleSubClasses._set_dtype`).
    """
    import deepspeed

    if plan.train.precision != "fp32" or any(hasattr(one, "ds_id") for one in module.parameters()):
        return
    deepspeed.zero.Init(
        module=module,
        config_dict_or_path=ds_config,
        mpu=grid,
        data_parallel_group=grid.get_data_parallel_group(),
    )


class Engine:
    """A DeepSpeed engine that takes whole optimizer steps; every rank must call each method."""

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        plan: Plan,
        *,
        ds_config: dict[str, Any],
        groups: Groups,
        device: torch.device,
    ) -> None:
        import deepspeed
        from deepspeed.runtime.pipe.topology import PipelineParallelGrid

        self.plan = plan
        self.pipeline = plan.layout.engine == "pipeline"
        with no_chatter():
            grid = None if self.pipeline else PipelineParallelGrid(topology=groups.topology)
            decaying = parameter_groups(parameters, plan.optimizer.weight_decay)
            if plan.offload.parameters == "nvme":
                _deal_out(module, plan, ds_config, grid)
            own = None if plan.optimizer.type == "adamw" else optimizers.make(decaying, plan.optimizer)
            self.deepspeed, *_ = deepspeed.initialize(
                model=module,
                optimizer=own,
                model_parameters=decaying if own is None else None,
                config=with_usable_optimizer(ds_config, device),
                mpu=grid,
                dist_init_required=False,
            )
        if (check := getattr(self.deepspeed, "first_dataloader_check", None)) is not None:
            # AutoTP's comparison of what the shards read cannot look into a pair of tensors.
            check.remove()
        self.parameters = parameters
        self.grid = module.mpu() if self.pipeline else grid
        if plan.layout.schedule == "gpipe":
            from dsforge.train.gpipe import use_gpipe

            use_gpipe(self.deepspeed)
        self.micro_losses: Sequence[torch.Tensor] = ()
        """The last step's losses as this rank alone computed them, by micro-batch; none on other stages."""
        self.modules = (module,)
        # The two stages are summed first, then replicas: three numbers in an order that depends on what else
        # a stage holds.
        self.ties_bitwise = plan.layout.dp <= 2
        self.before_update: Callable[[], None] = lambda: None
        """Called once a step on every rank, when the gradients are there and the optimizer begins."""
        self._own_norm: float | None = None
        self._scale = EngineScale(self.deepspeed.optimizer) if plan.train.precision == "fp16" else None
        self._losses: list[torch.Tensor] = []
        if self.pipeline:
            self._keep_losses(module)
        self._watch_updates()

    @property
    def optimizer_name(self) -> str:
        """The class that updates the weights."""
        basic = self.deepspeed.basic_optimizer
        return f"{type(basic).__module__}.{type(basic).__name__}"

    def _watch_updates(self) -> None:
        take_step = self.deepspeed._take_model_step
        # Here the engine clips without keeping the norm, and on a pipeline clips by a wrong one.
        measures_norm = self.plan.layout.zero == 0 and self.plan.train.precision == "fp32"

        def watched(*arguments: Any, **options: Any) -> Any:
            self.before_update()
            if measures_norm:
                self._own_norm = self._gradient_norm()
            return take_step(*arguments, **options)

        self.deepspeed._take_model_step = watched

    def _keep_losses(self, module: nn.Module) -> None:
        loss_of: Callable[..., torch.Tensor] = module.loss_fn  # type: ignore[assignment]  # of a PipelineModule

        def kept(*arguments: torch.Tensor) -> torch.Tensor:
            loss = loss_of(*arguments)
            self._losses.append(loss.detach().clone())
            return loss

        module.loss_fn = kept  # type: ignore[assignment]  # as it is

    def reduced_gradients(self) -> Mapping[str, Piece]:
        """Return each parameter's gradient, or the part of it that ZeRO has this rank update."""
        return {name: _gradient(parameter) for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def _gradient_norm(self) -> float:
        first_shard = self.grid.get_slice_parallel_rank() == 0
        total = torch.zeros((), dtype=torch.float64, device=self.deepspeed.device)
        for parameter in self.parameters.values():
            cut = getattr(parameter, "tensor_model_parallel", False)
            tied_copy = getattr(parameter, "ds_pipe_replicated", False)
            if parameter.grad is not None and (cut or first_shard) and not tied_copy:
                total += torch.linalg.vector_norm(parameter.grad, dtype=torch.float64).square()
        dist.all_reduce(total, group=self.grid.get_model_parallel_group())
        return math.sqrt(total.item())

    def step(self, batches: Batches, learning_rate: float) -> StepResult:
        """Train on the next global batch at a learning rate."""
        for group in self.deepspeed.optimizer.param_groups:
            group["lr"] = learning_rate
        loss = self._pipeline_step(batches) if self.pipeline else self._module_step(batches)
        norm = self._own_norm if self._own_norm is not None else self.deepspeed.get_global_grad_norm()
        assert norm is not None, "the engine reports no gradient norm"
        # Outside of 16 bits nothing overflows that would be right in another step.
        skipped = self.plan.train.precision != "fp32" and getattr(self.deepspeed.optimizer, "overflow", False)
        scale = self._scale.follow() if self._scale else None
        return StepResult(loss, float(norm), scale, bool(skipped))

    def _pipeline_step(self, batches: Batches) -> float:
        self._losses = []
        loss = float(self.deepspeed.train_batch(batches).item())
        self.micro_losses = tuple(self._losses)
        return loss

    def _module_step(self, batches: Batches) -> float:
        count = self.plan.batch.accumulation_steps
        losses: list[torch.Tensor] = []
        for _ in range(count):
            inputs, labels = next(batches)
            loss = self.deepspeed(inputs, labels)
            losses.append(loss.detach().clone())
            self.deepspeed.backward(loss)
            self.deepspeed.step()
        self.micro_losses = losses
        total = torch.stack(losses).mean()
        return self._over_replicas(total)

    def _over_replicas(self, loss: torch.Tensor) -> float:
        dist.all_reduce(loss, group=self.grid.get_data_parallel_group())
        return float((loss / self.plan.layout.dp).item())

    def evaluate(self, batches: Batches, count: int) -> float:
        """Return the mean token loss of `count` global batches; weights, gradients and counters stay."""
        losses = self._pipeline_losses if self.pipeline else self._module_losses
        return sum(losses(batches) for _ in range(count)) / count

    def _pipeline_losses(self, batches: Batches) -> float:
        return float(self.deepspeed.eval_batch(batches).item())

    @torch.no_grad()
    def _module_losses(self, batches: Batches) -> float:
        count = self.plan.batch.accumulation_steps
        total = torch.zeros((), device=self.deepspeed.device)
        self.deepspeed.eval()
        for _ in range(count):
            total += self.deepspeed(*next(batches))
        self.deepspeed.train()
        return self._over_replicas(total / count)

    def save_files(self, folder: Path) -> None:
        """Let the engine write its files."""
        if self.plan.offload.path is not None:
            disk.save(folder, dist.get_rank(), self.deepspeed.optimizer)
            return
        make_loadable_without_code()
        self.deepspeed.save_checkpoint(str(folder), tag=TAG, save_latest=False)

    def load_files(self, folder: Path) -> None:
        """Let the engine load its files, no code in them.

        DsforgeError DSF334 names a file that cannot be loaded. The optimizer's options stay the plan's.
        """
        if self.plan.offload.path is not None:
            disk.load(folder, dist.get_rank(), self.deepspeed.optimizer)
            return
        from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
        from deepspeed.runtime.zero.config import ZeroStageEnum
        from deepspeed.utils.tensor_fragment import fragment_address

        optimizer = self.deepspeed.optimizer
        planned = [
            {key: group[key] for key in optimizers.OPTIONS if key in group}
            for group in optimizer.param_groups
        ]
        # The engine itself would unpickle whatever stands in the files.
        self.deepspeed.checkpoint_engine.load = partial(load_file, folder)
        classes = [DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address]
        with torch.serialization.safe_globals(classes), no_chatter():
            loaded, _ = self.deepspeed.load_checkpoint(str(folder), tag=TAG)
        if loaded is None:
            raise not_whole(folder, NotWhole(folder / TAG, "lacks files of the engine"))
        for group, wanted in zip(optimizer.param_groups, planned, strict=True):
            group.update(wanted)
        if hasattr(optimizer, "clip_grad"):
            optimizer.clip_grad = self.plan.optimizer.grad_clip


def _gradient(parameter: nn.Parameter) -> Piece:
    from deepspeed.utils import safe_get_local_grad

    whole = getattr(parameter, "_hp_grad", None)
    if whole is None and not hasattr(parameter, "ds_id") and not hasattr(parameter, "_hp_mapping"):
        whole = parameter.grad
    if whole is not None:
        return Piece.whole(whole)
    if hasattr(parameter, "ds_id"):
        return dealt_out(parameter, safe_get_local_grad(parameter))
    owned = getattr(parameter, "_hp_mapping", None)
    if owned is None:
        return Piece.nothing(parameter)
    values = owned.get_lp_grad_fragment(parameter._index_in_param_group)  # type: ignore[attr-defined]  # set by DeepSpeed
    return Piece(owned.lp_fragment_address.start, parameter.numel(), values.detach().reshape(-1))
