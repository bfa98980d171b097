"""mpirun of Open MPI, which starts every rank over ssh."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts
from dsforge.render.launchers.over_ssh import interface, over_ssh


def _network(plan: Plan) -> str | None:
    """Return the network by which the hosts find their interfaces, in the form that mpirun takes, too."""
    choice = plan.launch.interface or ""
    return choice if "/" in choice and ":" not in choice else None


def files(plan: Plan, hosts: Hosts | None) -> dict[str, str]:
    """Return the hostfile and the script; the first host is where ranks meet."""
    return over_ssh("openmpi", plan, hosts, interface=interface(plan) or _network(plan))
