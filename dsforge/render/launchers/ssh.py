"""Our own fan-out over ssh (dsforge.launch.fan_out), which starts deepspeed's launcher on every host."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.render.hosts import Gpus, Hosts, World
from dsforge.render.hosts.engine import LONGEST_WORD, check_room, include, world_info
from dsforge.render.launchers.over_ssh import over_ssh

_ROOM = LONGEST_WORD - len("--world_info=")


def files(plan: Plan, hosts: Hosts | None, gpus: Gpus | None = None) -> dict[str, str]:
    """Return the hostfile and the script; the first host is where ranks meet."""
    assert hosts is not None, "refused by DSF155"
    chosen = include(gpus) if gpus else None
    needed = max(len(world_info(World(hosts, gpus).ranks())), len(chosen or ""))
    check_room(needed, _ROOM, len(hosts), "plan for fewer hosts, or set launch.launcher=slurm")
    return over_ssh("ssh", plan, hosts, include=chosen)
