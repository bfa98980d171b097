"""The micro-batches of one replica, read ahead by a thread where the plan asks for workers."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator

import numpy as np
import torch

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.plan.types import Plan
from dsforge.train.reader import batch_ids
from dsforge.train.samples import Samples

Batch = tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]
"""(tokens [micro, seq_len], ids of their samples [micro]), labels [micro, seq_len]."""
Batches = Iterator[Batch]


def micro_batches(samples: Samples, plan: Plan, replica: int, steps: range) -> Batches:
    """Yield a replica's micro-batches of one global batch a step, steps counted from 0."""
    batch = plan.batch
    for step in steps:
        for micro in range(batch.accumulation_steps):
            ids = batch_ids(batch, plan.layout.dp, replica, step, micro)
            tokens = torch.from_numpy(np.stack([samples.sample(sample_id) for sample_id in ids]))
            yield (tokens[:, :-1].contiguous(), torch.tensor(ids)), tokens[:, 1:].contiguous()


def no_batches() -> Batches:
    """Yield nothing: the stages between the first and the last see neither tokens nor labels."""
    yield from ()


def read_ahead(batches: Batches, depth: int) -> Batches:
    """Yield the same batches, up to `depth` of them prepared by a thread; its error is raised here."""
    if depth == 0:
        yield from batches
        return
    ready: queue.Queue[Batch | BaseException | None] = queue.Queue(depth)

    def work() -> None:
        try:
            for batch in batches:
                ready.put(batch)
            ready.put(None)
        except BaseException as error:  # noqa: BLE001 - handed to the reader of the queue, who raises it
            ready.put(error)

    threading.Thread(target=work, name="dsforge-data", daemon=True).start()
    while (item := ready.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


def in_order(batches: Batches, plan: Plan, replica: int, first_step: int) -> Batches:
    """Yield a replica's micro-batches once the ids of their samples are those that the plan has there.

    DsforgeError DSF809 for one that came twice, was left out, or belongs to another replica.
    """
    count = plan.batch.accumulation_steps
    for number, one in enumerate(batches):
        step, micro = first_step + number // count, number % count
        planned = batch_ids(plan.batch, plan.layout.dp, replica, step, micro)
        found = one[0][1].tolist()
        if found != list(planned):
            raise DsforgeError(
                "DSF809",
                f"micro-batch {micro} of replica {replica} in step {step + 1} holds the samples "
                f"{found[0]} to {found[-1]}, the plan has {planned.start} to {planned.stop - 1} there",
                Place(host=socket.gethostname()),
                "go on from the newest checkpoint with an unchanged reader: earlier steps are right",
                ExitCode.FINDINGS,
            )
        yield one


def to_device(batches: Batches, device: torch.device) -> Batches:
    """Yield the batches on a device."""
    for inputs, labels in batches:
        tokens, ids = (part.to(device, non_blocking=True) for part in inputs)
        yield (tokens, ids), labels.to(device, non_blocking=True)
