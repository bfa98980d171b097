"""Stops a run at the first loss, gradient norm or weight that is not finite, before one is kept."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import nn

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.plan.types import Layout
from dsforge.train.context import RankContext
from dsforge.train.engine_protocol import StepResult
from dsforge.train.held import held
from dsforge.train.recorder import Recorder
from dsforge.train.world import coordinates

_NAMES = {"loss": "the loss", "grad_norm": "the gradient norm"}
_MOST_NAMED = 4


def check_step(
    result: StepResult, own_loss: float | None, step: int, context: RankContext, recorder: Recorder
) -> None:
    """Raise DsforgeError DSF350 unless loss and gradient norm are finite; every rank must call it.

    `own_loss` is what this rank added to the loss, None where it has none: it tells on which ranks the loss
    was lost. A norm is a sum over all ranks and tells nothing; that of a skipped step is meant to be lost.
    """
    values = {"loss": result.loss} if result.skipped else {n: getattr(result, n) for n in _NAMES}
    wrong = {name: value for name, value in values.items() if not math.isfinite(value)}
    if not wrong:
        return
    lost: list[Any] = [None] * context.world_size
    dist.all_gather_object(lost, own_loss is not None and not math.isfinite(own_loss))
    ranks = [rank for rank, is_lost in enumerate(lost) if is_lost]
    what = " and ".join(f"{_NAMES[name]} is {value}" for name, value in wrong.items()) + f" at step {step}"
    recorder.event("not_finite", what, step=step, ranks=ranks, **values)
    raise _not_finite(what + (f", computed on {named(ranks, context.plan.layout)}" if ranks else ""), context)


def check_validation(loss: float, step: int, context: RankContext, recorder: Recorder) -> None:
    """Raise DsforgeError DSF350 unless a validation loss, which every rank knows, is finite."""
    if not math.isfinite(loss):
        what = f"the validation loss is {loss} after step {step}"
        recorder.event("not_finite", what, step=step)
        raise _not_finite(what, context)


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
    raise _not_finite(f"{what}, on {named(ranks, context.plan.layout)}", context)


def first_not_finite(parameters: Mapping[str, nn.Parameter]) -> str | None:
    """Return the name of the first parameter of which this rank holds a value that is not finite."""
    for name, parameter in parameters.items():
        if not bool(held(parameter).detach().isfinite().all()):
            return name
    return None


def named(ranks: list[int], layout: Layout) -> str:
    """Return ranks with their places in the layout, the first few of many."""
    spots = []
    for rank in ranks[:_MOST_NAMED]:
        where = coordinates(rank, layout)
        spots.append(f"rank {rank} (stage {where.stage}, replica {where.replica})")
    more = [f"{len(ranks) - _MOST_NAMED} more"] if len(ranks) > _MOST_NAMED else []
    return ", ".join(spots + more)


def _not_finite(message: str, context: RankContext) -> DsforgeError:
    return DsforgeError(
        "DSF350",
        message,
        Place(host=socket.gethostname(), rank=context.rank),
        "lower optimizer.lr, lengthen optimizer.warmup_steps or clip with optimizer.grad_clip; "
        "the checkpoints of earlier steps are finite",
        ExitCode.FINDINGS,
    )
