"""Stops a run at the first loss, gradient norm or weight that is not finite, before one is kept."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.plan.types import Layout, Plan
from dsforge.train.context import RankContext
from dsforge.train.engine_protocol import StepResult
from dsforge.train.held import held
from dsforge.train.module_watch import ModuleWatch, Sight
from dsforge.train.reader import batch_ids
from dsforge.train.recorder import Recorder
from dsforge.train.world import coordinates

_NAMES = {"loss": "the loss", "grad_norm": "the gradient norm"}
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one rank knows of a step that was lost: its first lost micro-batch, first module, and gradient."""

    micro: int | None
    sight: Sight | None
    gradient: str | None


def check_step(
    result: StepResult,
    losses: Sequence[torch.Tensor],
    step: int,
    context: RankContext,
    recorder: Recorder,
    watch: ModuleWatch | None = None,
) -> None:
    """Raise DsforgeError DSF350 unless loss and gradient norm are finite; every rank must call it.

    `losses` are those that this rank computed, by micro-batch: they tell on which ranks the loss was lost,
    and `watch` in which module. A norm is a sum over all ranks; that of a skipped step is meant to be lost.
    """
    values = {"loss": result.loss} if result.skipped else {n: getattr(result, n) for n in _NAMES}
    wrong = {name: value for name, value in values.items() if not math.isfinite(value)}
    if not wrong:
        return
    micro = next((number for number, loss in enumerate(losses) if not math.isfinite(loss)), None)
    own = _Seen(micro, watch.first() if watch else None, watch.last_gradient() if watch else None)
    seen: list[Any] = [None] * context.world_size
    dist.all_gather_object(seen, own)
    what = " and ".join(f"{_NAMES[name]} is {value}" for name, value in wrong.items()) + f" at step {step}"
    where, facts = _places(seen, step, context.plan)
    recorder.event("not_finite", what + where, step=step, **facts, **values)
    raise not_finite(what + where, context)


def _places(seen: Sequence[_Seen], step: int, plan: Plan) -> tuple[str, dict[str, Any]]:
    """Return in words, and as facts, what ranks know of where a step was lost."""
    layout = plan.layout
    lost = {rank: one.micro for rank, one in enumerate(seen) if one.micro is not None}
    words, facts = "", {"ranks": list(lost)}
    if lost:
        rank, micro = min(lost.items(), key=lambda item: (item[1], item[0]))
        words = f", computed on {named(list(lost), layout)}, first in {micro_words(rank, micro, step, plan)}"
        facts["micro_batch"] = micro
    sights = [(one.sight, rank) for rank, one in enumerate(seen) if one.sight is not None]
    if sights:
        sight, rank = min(
            sights, key=lambda item: (item[0].micro, coordinates(item[1], layout).stage, item[0].call)
        )
        at = named([rank], layout)
        words += f"; the first module whose output is not finite: {sight.module}, on {at}, "
        words += micro_words(rank, sight.micro, step, plan)
        facts |= {"module": sight.module, "module_rank": rank, "micro_batch": sight.micro}
    gradients = {rank: one.gradient for rank, one in enumerate(seen) if one.gradient is not None}
    if gradients and not sights:
        rank = max(gradients, key=lambda one: (coordinates(one, layout).stage, -one))
        words += f"; the gradient nearest to the loss that is not finite: that of {gradients[rank]}"
        facts["parameter"] = gradients[rank]
    return words, facts


def micro_words(rank: int, micro: int, step: int, plan: Plan) -> str:
    """Return which micro-batch of a rank, counted from 0, and the ids of its samples; steps from 1."""
    ids = batch_ids(plan.batch, plan.layout.dp, coordinates(rank, plan.layout).replica, step - 1, micro)
    return f"micro-batch {micro} of rank {rank} (samples {ids.start} to {ids.stop - 1})"


def check_validation(loss: float, step: int, context: RankContext, recorder: Recorder) -> None:
    """Raise DsforgeError DSF350 unless a validation loss, which every rank knows, is finite."""
    if not math.isfinite(loss):
        what = f"the validation loss is {loss} after step {step}"
        recorder.event("not_finite", what, step=step)
        raise not_finite(what, context)


def check_weights(
    parameters: Mapping[str, nn.Parameter], step: int, context: RankContext, recorder: Recorder
) -> None:
    """Raise DsforgeError DSF350 unless every weight is finite; every rank must call it, before a save."""
    found: list[Any] = [None] * context.world_size
    dist.all_gather_object(found, first_not_finite(parameters))
    ranks = [rank for rank, name in enumerate(found) if name is not None]
    if not ranks:
        return
    what = f"{found[ranks[0]]} is not finite after step {step}"
    recorder.event("not_finite", what, step=step, ranks=ranks)
    raise not_finite(f"{what}, on {named(ranks, context.plan.layout)}", context)


def first_not_finite(parameters: Mapping[str, nn.Parameter]) -> str | None:
    """Return the name of the first parameter of which this rank holds a value that is not finite."""
    for name, parameter in parameters.items():
        if not bool(held(parameter).detach().isfinite().all()):
            return name
    return None


def named(ranks: Sequence[int], layout: Layout, hosts: Sequence[str] = ()) -> str:
    """Return ranks with their places in the layout, and their hosts if told, the first few of many."""
    spots = []
    for rank in ranks[:_MOST_NAMED]:
        where = coordinates(rank, layout)
        part = f", part {where.part}" if layout.cp > 1 else ""
        spot = f"rank {rank} (stage {where.stage}, replica {where.replica}{part})"
        spots.append(spot + (f" on {hosts[rank]}" if hosts else ""))
    more = [f"{len(ranks) - _MOST_NAMED} more"] if len(ranks) > _MOST_NAMED else []
    return ", ".join(spots + more)


def not_finite(message: str, context: RankContext) -> DsforgeError:
    """Return the error of a number that is not finite, from this rank."""
    return DsforgeError(
        "DSF350",
        message,
        Place(host=socket.gethostname(), rank=context.rank),
        "lower optimizer.lr, lengthen optimizer.warmup_steps or clip with optimizer.grad_clip; "
        "the checkpoints of earlier steps are finite",
        ExitCode.FINDINGS,
    )
