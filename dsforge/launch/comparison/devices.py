"""DSF258, DSF259, DSF732: the GPUs and the fabric that the plan counts on, and who uses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dsforge.base.errors import Finding
from dsforge.base.text import counted
from dsforge.catalog.tables import hardware_of_device
from dsforge.launch.comparison.known import Known, fault, warning
from dsforge.records.probe import Gpu, HostFacts

_MOST_SHOWN = 3


def check(known: Known) -> Iterator[Finding]:
    """Yield hosts with fewer or other GPUs than the plan has, and GPUs that are in use or ailing."""
    if not known.question.gpus:
        return
    drivers = Counter(gpu.driver for _, facts in known.answered() for gpu in facts.gpus)
    for host, facts in known.answered():
        yield from _planned(known, host, facts)
        if known.question.environ.get("NCCL_NET") == "IB" and not facts.has_fabric:
            hint = "load its driver there (`ls /sys/class/infiniband`), or set cluster.fabric=ethernet"
            yield fault(
                "DSF732", host, "it has no device for RDMA, and NCCL is told to use nothing else", hint
            )
        for index, gpu in enumerate(facts.gpus):
            yield from _one(host, index, gpu)
        if facts.xids:
            yield warning(
                "DSF259",
                host,
                f"its kernel tells of GPU faults: {facts.xids[-1]}",
                "`dmesg | grep Xid` there; 48, 63, 64, 79, 94 and 95 are the hardware's: leave the host out",
            )
        own = {gpu.driver for gpu in facts.gpus}
        common = drivers.most_common(1)[0][0] if drivers else ""
        if own - {common}:
            hint = f"install driver {common} there"
            yield warning("DSF259", host, f"its driver is {min(own)}, most hosts have {common}", hint)


def _planned(known: Known, host: str, facts: HostFacts) -> Iterator[Finding]:
    wanted = known.plan.layout.gpus_per_node
    if facts.gpu_problem is not None:
        hint = "mend the driver there (`nvidia-smi`), or leave the host out of the hostfile"
        yield fault("DSF258", host, f"its GPUs cannot be counted: {facts.gpu_problem}", hint)
    elif (beyond := _beyond(known, host, facts)) is not None:
        message = f"the recipe chooses GPU {beyond}, it has {len(facts.gpus)}"
        yield fault("DSF258", host, message, "choose others in cluster.include, or leave the host out")
    elif len(facts.gpus) < wanted:
        yield fault(
            "DSF258",
            host,
            f"it has {counted(len(facts.gpus), 'GPU')}, its slots promise {wanted}",
            f"slots={len(facts.gpus)} in the hostfile and cluster.gpus_per_node={len(facts.gpus)}, "
            "or leave the host out",
        )
    for name in sorted({gpu.name for gpu in facts.gpus}):
        kind = hardware_of_device(name)
        # A GPU that the catalogue does not know is told by nobody: its memory may be what the plan has.
        if kind is not None and kind.name != known.plan.gpu:
            hint = f"set cluster.gpu={kind.name}, or name hosts that have {known.plan.gpu}"
            yield fault("DSF258", host, f"it has {name}, the recipe has {known.plan.gpu}", hint)


def _beyond(known: Known, host: str, facts: HostFacts) -> int | None:
    """Return the last GPU that is chosen of a host, if the host does not have it."""
    if known.chosen is None:
        return None
    (node,) = [seen.node for seen in known.seen if seen.host == host]
    last = max(known.chosen.by_node[node])
    return last if last >= len(facts.gpus) else None


def _one(host: str, index: int, gpu: Gpu) -> Iterator[Finding]:
    if gpu.processes:
        shown = ", ".join(gpu.processes[:_MOST_SHOWN])
        hint = "wait for them or end them; their memory is not there for the plan"
        yield warning("DSF259", host, f"GPU {index} is in use: {shown}", hint)
    if gpu.errors:
        hint = "reset or replace it, and leave the host out until then"
        yield warning("DSF259", host, f"GPU {index} has {gpu.errors} uncorrected memory errors", hint)
