"""megatron-core's schedules, gradient buffers and optimizers behind one step; all ranks call each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from torch import nn

from dsforge.plan.types import Plan
from dsforge.train.batches import Batches
from dsforge.train.core_on_cpu import cuda_names
from dsforge.train.core_states import file_of, load_states, save_states
from dsforge.train.engine_protocol import StepResult
from dsforge.train.held import Piece
from dsforge.train.loss import Loss
from dsforge.train.loss_scale import LossScale
from dsforge.train.precision import DTYPES
from dsforge.train.quiet import no_chatter
from dsforge.train.reader import batch_ids
from dsforge.train.rows import Rows
from dsforge.train.world import Coordinates

Micro = tuple[torch.Tensor | None, torch.Tensor, torch.Tensor | None]
"""A part's tokens [b, s], ids of its samples [b], labels [b, s]; stages inside a pipeline have ids alone."""


class CoreEngine:
    """Chunks of a model, one a virtual stage, that take whole optimizer steps."""

    def __init__(
        self,
        chunks: list[nn.Module],
        parameters: Mapping[str, nn.Parameter],
        plan: Plan,
        *,
        loss: Loss,
        where: Coordinates,
        device: torch.device,
    ) -> None:
        self.plan = plan
        self.parameters = parameters
        self.micro_losses: Sequence[torch.Tensor] = ()
        """The last step's losses as this rank alone computed them, by micro-batch; none on other stages."""
        self.before_update: Callable[[], None] = lambda: None
        """Called once a step on every rank, when the gradients are there and the optimizer begins."""
        self.steps_done = 0
        self._loss = loss
        self._where = where
        self._device = device
        sharded, fp16 = plan.layout.zero == 1, plan.train.precision == "fp16"
        how = DistributedDataParallelConfig(grad_reduce_in_fp32=not fp16, use_distributed_optimizer=sharded)
        config = chunks[0].config
        config.finalize_model_grads_func = finalize_model_grads
        with no_chatter(), cuda_names(device):
            self._chunks = [DistributedDataParallel(config, how, chunk) for chunk in chunks]
            self._optimizer = get_megatron_optimizer(
                optimizer_config(plan), self._chunks, use_gloo_process_groups=False
            )
        self._scale = LossScale() if fp16 else None
        if fp16:
            config.grad_scale_func = self._optimizer.scale_loss
        self.modules = tuple(self._chunks)
        # Replicas are summed first, then the two stages.
        self.ties_bitwise = True
        for group in self._groups():
            # megatron-core leaves this to the schedule of whoever uses it.
            group["weight_decay"] = plan.optimizer.weight_decay * group["wd_mult"]
        self._pass = get_forward_backward_func()

    @property
    def optimizer_name(self) -> str:
        """The classes that update the weights."""
        names = [
            f"{type(part).__name__} over {type(part.optimizer).__module__}.{type(part.optimizer).__name__}"
            for part in self._optimizer.chained_optimizers
        ]
        return ", ".join(dict.fromkeys(names))

    def _updaters(self) -> Iterator[torch.optim.Optimizer]:
        """Yield PyTorch's optimizers inside megatron-core's."""
        yield from (part.optimizer for part in self._optimizer.chained_optimizers)

    def _groups(self) -> Iterator[dict[str, Any]]:
        for updater in self._updaters():
            yield from updater.param_groups

    def step(self, batches: Batches, learning_rate: float) -> StepResult:
        """Train on the next global batch at a learning rate."""
        for group in self._groups():
            group["lr"] = learning_rate
        for chunk in self._chunks:
            chunk.zero_grad_buffer()
        self._optimizer.zero_grad()
        scale = self._scale.value if self._scale else None
        if scale is not None:
            for part in self._optimizer.chained_optimizers:
                part.grad_scaler.scale.fill_(scale)
        loss = self._losses(batches, forward_only=False)
        self.before_update()
        with cuda_names(self._device):
            taken, measured, _ = self._optimizer.step()
        norm = float(measured) if taken else math.inf
        skipped = self._scale is not None and not self._scale.follow(norm)
        self.steps_done += 1
        return StepResult(loss, norm, scale, skipped)

    def reduced_gradients(self) -> Mapping[str, Piece]:
        """Return each parameter's gradient, or what the distributed optimizer gives this rank of it."""
        if self.plan.layout.zero == 0:
            return {name: Piece.whole(weight.main_grad) for name, weight in self.parameters.items()}  # type: ignore[arg-type]  # megatron-core sets it
        return {name: self._part(weight) for name, weight in self.parameters.items()}

    def _part(self, weight: nn.Parameter) -> Piece:
        for part in self._optimizer.chained_optimizers:
            try:
                owned = part._get_model_param_range_map(weight)["param"]
            except KeyError:
                continue  # other ranks update it, or another of the optimizers
            flat = weight.main_grad.detach().reshape(-1)  # type: ignore[operator]  # megatron-core sets it
            return Piece(owned.start, weight.numel(), flat[owned.start : owned.end])
        return Piece.nothing(weight)

    def evaluate(self, batches: Batches, count: int) -> float:
        """Return the mean token loss of `count` global batches; weights, gradients and counters stay."""
        for chunk in self._chunks:
            chunk.eval()
        own = self.micro_losses
        mean = sum(self._losses(batches, forward_only=True) for _ in range(count)) / count
        self.micro_losses = own
        for chunk in self._chunks:
            chunk.train()
        return mean

    def _losses(self, batches: Batches, *, forward_only: bool) -> float:
        """Return the mean loss of a global batch on every rank, having run the schedule over it."""
        batch = self.plan.batch
        micros = list(self._micros(batches))
        losses = self._pass(
            forward_step_func=self._forward,
            data_iterator=[iter(micros) for _ in self._chunks],
            model=self._chunks,
            num_microbatches=batch.accumulation_steps,
            seq_length=batch.seq_len,
            micro_batch_size=batch.micro,
            forward_only=forward_only,
        )
        mean = torch.zeros((), dtype=torch.float64, device=self._device)
        self.micro_losses = losses
        if losses:
            mean += torch.stack(losses).mean()
        # Only the last stage adds something.
        dist.all_reduce(mean, group=parallel_state.get_pipeline_model_parallel_group())
        dist.all_reduce(mean, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
        return float(mean) / (self.plan.layout.dp * self.plan.layout.cp)

    def _micros(self, batches: Batches) -> Iterator[Micro]:
        batch, layout = self.plan.batch, self.plan.layout
        rows = Rows(layout.cp, self._where.part).of_part(batch.seq_len // layout.cp, self._device)
        for micro in range(batch.accumulation_steps):
            if self._where.stage in (0, layout.pp - 1):
                (tokens, samples), labels = next(batches)
                yield tokens[:, rows], samples, labels[:, rows]
            else:
                # Such a stage is sent no ids; they follow from the step.
                ids = batch_ids(batch, layout.dp, self._where.replica, self.steps_done, micro)
                yield None, torch.tensor(ids, device=self._device), None

    def _forward(self, micros: Iterator[Micro], chunk: nn.Module) -> tuple[torch.Tensor, Any]:
        tokens, samples, labels = next(micros)

        def loss_of(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            assert labels is not None
            loss = self._loss(logits, labels)
            # The schedule multiplies by CP, as if all parts' losses had been added up, and divides in place.
            return loss / self.plan.layout.cp, loss.detach()

        return chunk(tokens, samples), loss_of

    def save_files(self, folder: Path) -> None:
        """Write this rank's part of a checkpoint; OSError or RuntimeError when it cannot be written."""
        path = file_of(folder, dist.get_rank())
        save_states(path, self.parameters, self._updaters(), self.steps_done, self._scale)

    def load_files(self, folder: Path) -> None:
        """Load this rank's part of a whole checkpoint, no code in it; DsforgeError DSF334 names a bad file.

        The optimizer's options stay the plan's.
        """
        path = file_of(folder, dist.get_rank())
        self.steps_done, self._scale = load_states(path, self.parameters, self._updaters(), self._scale)


def optimizer_config(plan: Plan) -> OptimizerConfig:
    """Return megatron-core's description of the plan's optimizer."""
    options, precision = plan.optimizer, DTYPES[plan.train.precision]
    return OptimizerConfig(
        optimizer="adam",
        lr=options.lr,
        min_lr=options.min_lr,
        weight_decay=options.weight_decay,
        adam_beta1=options.betas[0],
        adam_beta2=options.betas[1],
        adam_eps=options.eps,
        clip_grad=options.grad_clip,
        bf16=precision is torch.bfloat16,
        fp16=precision is torch.float16,
        # Ours moves it: with experts megatron-core has two optimizers, whose scales would part.
        loss_scale=LossScale().value if precision is torch.float16 else None,
        params_dtype=precision,
        use_distributed_optimizer=plan.layout.zero == 1,
    )
