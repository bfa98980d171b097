"""Our own fan-out over ssh (dsforge.launch.fan_out), which starts torchrun on every host."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts
from dsforge.render.launchers.over_ssh import over_ssh

_STARTERS = {"static": "torchrun", "c10d": "torchrun-c10d"}


def files(plan: Plan, hosts: Hosts | None) -> dict[str, str]:
    """Return the hostfile and the script; the first host is where ranks meet."""
    return over_ssh("torchrun", plan, hosts, starter=_STARTERS[plan.launch.rendezvous])
