"""The hostfile: read strictly, written so that DeepSpeed's own parser reads exactly the planned world."""

from __future__ import annotations

import re

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.plan.types import Layout

Hosts = dict[str, int]
"""Slots by host, in the order of the nodes."""

_LINE = re.compile(r"(\S+)\s+slots=([0-9]{1,9})")
_MOST_SHOWN = 100
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?")


def parse_hostfile(text: str, file: str) -> Hosts:
    """Return slots by host, in order; DsforgeError DSF040 names the line that is wrong.

    Stricter than the engine, which reads `slots=4x` as 4 and takes `-oProxyCommand` for a host.
    """
    hosts: Hosts = {}
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        place = Place(file, number, 1)
        match = _LINE.fullmatch(line)
        if not match:
            raise _fault(
                f"`{line[:_MOST_SHOWN]}` is not `HOST slots=N`", place, "for example `node1 slots=8`"
            )
        host, slots = match[1], int(match[2])
        if not _HOST.fullmatch(host):
            raise _fault(
                f"`{host}` is not a host name", place, "letters, digits, dots, dashes; no leading dash"
            )
        if host in hosts:
            raise _fault(f"host `{host}` stands twice", place, "keep one line a host")
        if slots < 1:
            raise _fault(f"host `{host}` has no slots", place, "remove it, or give it slots")
        hosts[host] = slots
    if not hosts:
        raise _fault("names no host", Place(file), "one line a host: `node1 slots=8`")
    return hosts


def _fault(message: str, place: Place, hint: str) -> DsforgeError:
    return DsforgeError("DSF040", message, place, hint)


def check_hosts(hosts: Hosts, layout: Layout, file: str) -> None:
    """Raise DsforgeError DSF041 unless the hosts are the planned nodes with enough slots."""
    if len(hosts) != layout.nodes:
        raise DsforgeError(
            "DSF041",
            f"{len(hosts)} hosts, the recipe has cluster.nodes {layout.nodes}",
            Place(file),
            f"list {layout.nodes} hosts, or set cluster.nodes={len(hosts)}",
            exit_code=ExitCode.FINDINGS,
        )
    for host, slots in hosts.items():
        if slots != layout.gpus_per_node:
            raise DsforgeError(
                "DSF041",
                f"{slots} slots, the recipe has cluster.gpus_per_node {layout.gpus_per_node}",
                Place(file, host=host),
                f"write slots={layout.gpus_per_node}, or change the recipe",
                exit_code=ExitCode.FINDINGS,
            )


def render_hosts(hosts: Hosts) -> str:
    """Return the hostfile's text."""
    return "".join(f"{host} slots={slots}\n" for host, slots in hosts.items())
