"""Joins the ranks, checks them against the plan, and makes the groups that they talk in."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.layout.ranks import Degrees
from dsforge.plan.types import Launch, Layout, Plan
from dsforge.train.context import RankContext

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where a rank stands: tensor-parallel shard, pipeline stage, replica, and part of sequences."""

    shard: int
    stage: int
    replica: int
    part: int = 0


def coordinates(rank: int, layout: Layout) -> Coordinates:
    """Return a rank's place, in the order of `dsforge.layout.ranks`."""
    at = Degrees(layout.tp, layout.pp, layout.dp, layout.cp).coordinates(rank)
    return Coordinates(shard=at.tp, stage=at.pp, replica=at.dp, part=at.cp)


@dataclass(frozen=True, slots=True)
class Seat:
    """What a rank says of itself when it has joined."""

    rank: int
    local_rank: int
    host: str
    shard: int
    stage: int
    replica: int
    device: str
    part: int = 0


@dataclass(frozen=True, slots=True)
class Groups:
    """`topology` maps ranks to coordinates; `shard` is this rank's as its layers know it.

    For layers that split: `tensor` is the TP group and `context` the CP group, `experts` are those that
    megatron-core's experts ask for, by name.
    """

    topology: Any
    shard: int
    tensor: Any = None
    context: Any = None
    experts: Mapping[str, Any] = field(default_factory=dict)


def _limit(seconds: float) -> timedelta:
    """Return a timeout for torch, which has no word for none: 0 seconds becomes ten years."""
    return timedelta(seconds=seconds) if seconds > 0 else timedelta(days=3650)


def join(context: RankContext, device: torch.device) -> None:
    """Meet all ranks; DsforgeError when they do not come within the plan's rendezvous timeout."""
    launch = context.plan.launch
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        meeting = dist.rendezvous("env://", timeout=_limit(launch.rendezvous_timeout_seconds))
        store, rank, world_size = next(iter(meeting))
        dist.init_process_group(
            backend="nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=_limit(launch.collective_timeout_seconds),
            # Without it NCCL guesses the device of a barrier by the rank's number.
            device_id=device if device.type == "cuda" else None,
        )
    except (dist.DistError, RuntimeError, OSError) as error:
        message, hint = _why_not_met(error, address)
        raise DsforgeError(
            "DSF310",
            message,
            Place(host=socket.gethostname(), rank=context.rank),
            hint,
            ExitCode.BEFORE_FIRST_STEP,
        ) from error


def control_group(launch: Launch) -> Any:
    """Return a group of all ranks for what is said beside the training; every rank must call it.

    On the CPU, so that it neither waits for a device nor takes one's time.
    """
    return dist.new_group(backend="gloo", timeout=_limit(launch.collective_timeout_seconds))


def limit_groups(launch: Launch) -> None:
    """Give all groups that this rank is of the plan's limit for a collective.

    Engines make theirs without one, and a group does not take that of the world: PyTorch's own is half an
    hour under gloo.
    """
    for group in distributed_c10d._world.pg_map:
        distributed_c10d._set_pg_timeout(_limit(launch.collective_timeout_seconds), group)


def _why_not_met(error: Exception, address: str) -> tuple[str, str]:
    text = str(error).strip()
    if "EADDRINUSE" in text or os.strerror(errno.EADDRINUSE).lower() in text.lower():
        host, _, port = address.rpartition(":")
        message = f"port {port} of {host} is taken by another program"
        return message, "`MASTER_PORT=PORT bash launch.sh` takes another; `dsforge launch` finds a free one"
    first_line = text.partition("\n")[0]
    message = f"the ranks did not meet at {address}: {first_line}"
    return message, "check that every host reaches MASTER_ADDR and that all ranks were started"


def from_rank_0(rank: int, decide: Callable[[], _Value]) -> _Value:
    """Return rank 0's value on every rank; its DsforgeError is everybody's. Every rank must call it."""
    answer: list[Any] = [None]
    if rank == 0:
        try:
            answer[0] = decide()
        except DsforgeError as error:
            answer[0] = error
    dist.broadcast_object_list(answer, src=0)
    if isinstance(answer[0], DsforgeError):
        raise answer[0]
    decided: _Value = answer[0]
    return decided


def check_seats(seats: list[Seat], plan: Plan) -> None:
    """Compare the joined ranks with the plan; DsforgeError names the first rank that differs."""
    layout = plan.layout
    taken: dict[tuple[str, str], int] = {}
    for expected, seat in enumerate(seats):
        place = Place(host=seat.host, rank=seat.rank)
        where = coordinates(expected, layout)
        facts = {
            "rank": (expected, seat.rank),
            "stage": (where.stage, seat.stage),
            "replica": (where.replica, seat.replica),
            "part": (where.part, seat.part),
            "shard": (where.shard, seat.shard),
            "device": (plan.accelerator, seat.device.partition(":")[0]),
        }
        for fact, (planned, actual) in facts.items():
            if planned != actual:
                raise _mismatch(f"rank {expected} has {fact} {actual}, the plan says {planned}", place)
        if seat.local_rank >= layout.gpus_per_node:
            message = f"rank {expected} is number {seat.local_rank} on {seat.host}, the plan has "
            raise _mismatch(f"{message}{layout.gpus_per_node} ranks a node", place)
        if plan.accelerator == "cuda":
            other = taken.setdefault((seat.host, seat.device), expected)
            if other != expected:
                raise _mismatch(f"ranks {other} and {expected} share {seat.device} of {seat.host}", place)


def _mismatch(message: str, place: Place) -> DsforgeError:
    hint = "start exactly the planned ranks; `dsforge launch` does"
    return DsforgeError("DSF311", message, place, hint, ExitCode.BEFORE_FIRST_STEP)


def gather_seats(context: RankContext, groups: Groups, device: torch.device) -> list[Seat]:
    """Return every rank's seat in order of rank, the coordinates as the engine sees them."""
    place = groups.topology.get_coord(dist.get_rank())
    own = Seat(
        rank=dist.get_rank(),
        local_rank=context.local_rank,
        host=socket.gethostname(),
        shard=groups.shard,
        stage=place.pipe,
        replica=place.data,
        device=str(device),
        part=0 if groups.context is None else groups.context.rank(),
    )
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, asdict(own))
    return [Seat(**seat) for seat in gathered]


def check_size(context: RankContext) -> None:
    """Compare the number of ranks with the plan before any group is made of them."""
    planned = context.plan.layout.world_size
    if context.world_size != planned:
        raise _mismatch(
            f"rank {context.rank} was told of {context.world_size} ranks, the plan has {planned}",
            Place(host=socket.gethostname(), rank=context.rank),
        )


def topology(layout: Layout) -> Any:
    """Return DeepSpeed's map of ranks to coordinates."""
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    return PipeModelDataParallelTopology(num_pp=layout.pp, num_mp=layout.tp, num_dp=layout.dp)
