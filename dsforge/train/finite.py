"""Stops a run at the first loss or gradient norm that is not finite, before it spoils what is kept."""

from __future__ import annotations

import math
import socket
from dataclasses import asdict
from typing import Any

import torch.distributed as dist

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.train.context import RankContext
from dsforge.train.engine import StepResult
from dsforge.train.recorder import Recorder
from dsforge.train.world import coordinates


def check_finite(
    result: StepResult, own_loss: float | None, step: int, context: RankContext, recorder: Recorder
) -> None:
    """Raise DsforgeError DSF350 unless loss and gradient norm are finite; every rank must call it.

    `own_loss` is what this rank added to the loss, None where it has none. It tells where a loss was lost: a
    norm is a sum over all ranks and tells nothing.
    """
    wrong = {name: value for name, value in asdict(result).items() if not math.isfinite(value)}
    if not wrong:
        return
    lost: list[Any] = [None] * context.world_size
    dist.all_gather_object(lost, own_loss is not None and not math.isfinite(own_loss))
    ranks = [rank for rank, is_lost in enumerate(lost) if is_lost]
    what = " and ".join(f"{_NAMES[name]} is {value}" for name, value in wrong.items())
    recorder.event("not_finite", f"{what} at step {step}", step=step, ranks=ranks, **asdict(result))
    raise DsforgeError(
        "DSF350",
        f"{what} at step {step}{_where(ranks, context)}",
        Place(host=socket.gethostname(), rank=context.rank),
        "lower optimizer.lr, lengthen optimizer.warmup_steps or clip with optimizer.grad_clip; "
        "checkpoints of earlier steps are finite",
        ExitCode.FINDINGS,
    )


_NAMES = {"loss": "the loss", "grad_norm": "the gradient norm"}


def _where(ranks: list[int], context: RankContext) -> str:
    if not ranks:
        return ""
    spots = []
    for rank in ranks:
        where = coordinates(rank, context.plan.layout)
        spots.append(f"rank {rank} (stage {where.stage}, replica {where.replica})")
    return f", computed on {', '.join(spots)}"
