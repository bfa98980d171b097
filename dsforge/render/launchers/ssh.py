"""Our own fan-out over ssh (dsforge.launch.fan_out), which starts deepspeed's launcher on every host."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts
from dsforge.render.hosts.engine import LONGEST_WORD, check_room, world_info
from dsforge.render.launchers.over_ssh import over_ssh

_ROOM = LONGEST_WORD - len("--world_info=")


def files(plan: Plan, hosts: Hosts | None) -> dict[str, str]:
    """Return the hostfile and the script; the first host is where ranks meet."""
    assert hosts is not None, "refused by DSF155"
    hint = "plan for fewer hosts, or set launch.launcher=slurm"
    check_room(len(world_info(hosts)), _ROOM, len(hosts), hint)
    return over_ssh("ssh", plan, hosts)
