"""Bytes of a node's memory and disks for what its ranks offload.

Source of what lies in memory beside a disk: deepspeed 0.19.8, `SwapBufferManager`
(runtime/swap_tensor/utils.py), `grad_partitions_flat_buffer` (runtime/zero/stage3.py), `buffers` and
`partitioned_swap_buffer` of `AsyncPartitionedParameterSwapper`.
"""

from __future__ import annotations

from dsforge.cost.job import Job
from dsforge.cost.memory.states import States
from dsforge.cost.offload import BUFFER_FACTOR
from dsforge.layout.largest import largest_parameter
from dsforge.layout.offload import DISK_BUFFERS, DISK_GROUP, DISK_STATES

_SINGLE = 4


def off_the_gpu(job: Job, kind: str, kept: States, parameters: int) -> tuple[int, int]:
    """Return bytes of a node's memory and of its disks; `parameters` of a rank before they are dealt out.

    Of DeepSpeed with the room for buffers that its estimators advise; FSDP's policy moves the shards alone:
    weights, gradients and two moments, each in fp32.
    """
    host = disk = 0.0
    for size, is_on_disk in (
        (kept.offloaded, job.optimizer_on_disk),
        (kept.offloaded_weights, job.parameters_on_disk),
    ):
        host, disk = (host, disk + size) if is_on_disk else (host + size, disk)
    if disk:
        host += _in_memory(job, parameters / (job.dp * job.cp))
    gpus = job.machine.gpus_per_node
    return int(host * gpus * (1 if kind == "fsdp" else BUFFER_FACTOR)), int(disk * gpus)


def _in_memory(job: Job, own: float) -> float:
    """Return bytes of one rank's memory beside `own` parameters on the disk: gradients, and what is moved."""
    largest = _largest(job) / job.dp
    group = min(own, DISK_GROUP + largest)
    weight = _SINGLE if job.precision == "fp32" else _SINGLE / 2
    made = _SINGLE * (own + DISK_STATES * group) if job.optimizer_on_disk else 0.0
    return made + (weight * (DISK_BUFFERS * largest + group) if job.parameters_on_disk else 0.0)


def _largest(job: Job) -> int:
    work, gates = job.work, 2 if job.work.gated else 1
    experts = work.experts.count * gates * work.experts.width if work.experts is not None else 0
    cut = (work.vocab, *(columns for _, columns in work.projections), gates * work.ffn_hidden)
    return largest_parameter(work.hidden, cut=cut, whole=(work.positions, experts), tp=job.tp)
