"""The planned world against the one at hand: checked before anything starts and as ranks report."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.plan.types import Plan
from dsforge.records.gpus import ChosenGpus
from dsforge.records.streams import WorldReport
from dsforge.render.hosts import check_hosts, parse_hostfile

_NVIDIA_SMI_SECONDS = 60.0
_HOSTFILE = "bundle/hostfile"
_MOST_DIGITS = 9


def planned_hosts(plan: Plan, hostfile: str) -> tuple[str, ...]:
    """Return the hosts of a bundle's hostfile; DsforgeError when it is not the planned world."""
    hosts = parse_hostfile(hostfile, _HOSTFILE)
    check_hosts(hosts, plan.layout, _HOSTFILE)
    return tuple(hosts)


def check_here(hosts: Sequence[str]) -> None:
    """Raise DsforgeError when a host is not this machine."""
    for host in hosts:
        # The launcher never looks at the name of a single host: it would start the ranks right here.
        if host not in _own_names():
            raise DsforgeError(
                "DSF202",
                f"the hostfile names {host}, this machine is {socket.gethostname()}",
                Place(file=_HOSTFILE, host=host),
                f"run dsforge launch on {host}, or name localhost in the hostfile",
                exit_code=ExitCode.ENVIRONMENT,
            )


def check_gpus(plan: Plan, environ: Mapping[str, str], chosen: ChosenGpus | None = None) -> None:
    """Raise DsforgeError when fewer GPUs are visible than the plan needs, or the `chosen` ones are not there.

    `environ` is what ranks have.
    """
    if plan.accelerator == "cuda" and chosen is not None:
        installed = _installed_gpus(environ)
        last = max(chosen.by_node[0])
        if installed <= last:
            raise DsforgeError(
                "DSF203",
                f"the recipe chooses GPU {last} of this machine, which has {installed}",
                hint="choose others in cluster.include, or leave it out",
                exit_code=ExitCode.ENVIRONMENT,
            )
    elif plan.accelerator == "cuda":
        visible = visible_gpus(environ)
        if visible < plan.layout.gpus_per_node:
            raise DsforgeError(
                "DSF203",
                f"the plan needs {plan.layout.gpus_per_node} GPUs on this machine, {visible} are visible",
                hint="set CUDA_VISIBLE_DEVICES to enough devices, plan for fewer, or use cluster.gpu=cpu",
                exit_code=ExitCode.ENVIRONMENT,
            )


def _own_names() -> set[str]:
    name = socket.gethostname()
    return {"localhost", "127.0.0.1", "::1", name, name.partition(".")[0], socket.getfqdn()}


def visible_gpus(environ: Mapping[str, str]) -> int:
    """Return how many GPUs a process would see: nvidia-smi's, or those CUDA_VISIBLE_DEVICES leaves."""
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    installed = _installed_gpus(environ)
    if chosen is None:
        return installed
    count = 0
    for device in (part.strip() for part in chosen.split(",")):
        # CUDA stops at the first id that names no device.
        if not device or device.startswith("-") or _is_beyond(device, installed):
            break
        count += 1
    return min(count, installed)


def _is_beyond(device: str, installed: int) -> bool:
    return device.isdecimal() and (len(device) > _MOST_DIGITS or int(device) >= installed)


def _installed_gpus(environ: Mapping[str, str]) -> int:
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"],  # noqa: S607 - its place differs by driver package
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_NVIDIA_SMI_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())


def report_difference(plan: Plan, report: WorldReport, seen: Mapping[int, WorldReport]) -> str | None:
    """Return how a rank's report differs from the plan or repeats another's, or None."""
    layout = plan.layout
    who = f"rank {report.rank} on host {report.host}"
    if report.world_size != layout.world_size:
        return f"{who} is in a world of {report.world_size}, the plan has {layout.world_size}"
    if not 0 <= report.rank < layout.world_size:
        return f"{who} is not one of the plan's ranks 0 to {layout.world_size - 1}"
    if report.rank in seen:
        return f"{who} (pid {report.pid}) was started twice, first as pid {seen[report.rank].pid}"
    expected = divmod(report.rank, layout.gpus_per_node)
    if (report.node, report.local_rank) != expected:
        return (
            f"{who} is local rank {report.local_rank} of node {report.node}, "
            f"the plan puts it at local rank {expected[1]} of node {expected[0]}"
        )
    first = report.node * layout.gpus_per_node
    beside = (seen[rank].host for rank in range(first, first + layout.gpus_per_node) if rank in seen)
    host = next(beside, report.host)
    if report.host != host:
        return f"{who} says node {report.node}, which is host {host}"
    return None
