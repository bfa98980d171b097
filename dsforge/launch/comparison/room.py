"""DSF264, DSF271: memory, shared memory, and the limits that a host sets its processes."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Finding
from dsforge.base.units import format_bytes
from dsforge.launch.comparison.known import Known, fault, warning
from dsforge.plan.memory import memory_estimate
from dsforge.rank.facts import SHM

_SHM_BYTES_WITH_GPUS = 2**30
"""What NVIDIA's notes on NCCL advise for containers: `--shm-size=1g`."""
_FILES_OF_ITS_OWN = 256


def check(known: Known) -> Iterator[Finding]:
    """Yield hosts with less than the ranks need."""
    layout, gpus = known.plan.layout, known.question.gpus
    # On a GPU the states lie in its own memory.
    states = 0 if gpus else layout.fullest_rank_bytes * layout.gpus_per_node
    estimate = memory_estimate(known.plan)
    offloaded = 0 if isinstance(estimate, str) else max(stage.host_bytes for stage in estimate.stages)
    # A process group joins every rank with every other one.
    files = _FILES_OF_ITS_OWN + 2 * layout.world_size
    for host, facts in known.answered():
        if facts.memory_bytes and states > facts.memory_bytes:
            yield fault(
                "DSF264",
                host,
                f"its ranks hold {format_bytes(states)} of model states, it has "
                f"{format_bytes(facts.memory_bytes)} of memory",
                "more nodes, a higher parallel.zero, or fewer slots a host",
            )
        elif facts.memory_bytes and states > facts.available_bytes:
            yield warning(
                "DSF264",
                host,
                f"its ranks hold {format_bytes(states)} of model states, "
                f"{format_bytes(facts.available_bytes)} of its memory are free",
                "end what uses it: `ps aux --sort=-rss | head` there",
            )
        if gpus and facts.memory_bytes and offloaded > facts.memory_bytes:
            yield warning(
                "DSF264",
                host,
                f"what is offloaded is estimated to take {format_bytes(offloaded)} of it, buffers included; "
                f"it has {format_bytes(facts.memory_bytes)} of memory",
                "more nodes, or offload.optimizer=nvme",
            )
        if gpus and facts.shm_bytes < _SHM_BYTES_WITH_GPUS:
            yield warning(
                "DSF264",
                host,
                f"{SHM} has {format_bytes(facts.shm_bytes)} left, NCCL and data workers want "
                f"{format_bytes(_SHM_BYTES_WITH_GPUS)}",
                f"start containers with --shm-size=1g or more, else `mount -o remount,size=8g {SHM}`",
            )
        if facts.open_files < files:
            yield warning(
                "DSF271",
                host,
                f"a process may open {facts.open_files} files, a rank of {layout.world_size} wants {files}",
                "raise it for logins by ssh: `* soft nofile 65536` in /etc/security/limits.conf",
            )
        if gpus and facts.has_fabric and facts.locked_memory_bytes is not None:
            yield warning(
                "DSF271",
                host,
                f"a process may lock {format_bytes(facts.locked_memory_bytes)}, InfiniBand wants all memory",
                "raise it for logins by ssh: `* - memlock unlimited` in /etc/security/limits.conf",
            )
