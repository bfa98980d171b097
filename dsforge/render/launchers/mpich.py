"""mpiexec of MPICH (Hydra), which starts every rank over ssh."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts
from dsforge.render.hosts.engine import LONGEST_WORD, check_room
from dsforge.render.launchers.over_ssh import interface, over_ssh


def files(plan: Plan, hosts: Hosts | None) -> dict[str, str]:
    """Return the hostfile and the script; the first host is where ranks meet."""
    assert hosts is not None, "refused by DSF155"
    needed = sum(len(f",{host}:{slots}") for host, slots in hosts.items())
    check_room(needed, LONGEST_WORD, len(hosts), "set launch.launcher=ssh, which has room for more")
    return over_ssh("mpich", plan, hosts, interface=interface(plan), looked_for=plan.launch.interface)
