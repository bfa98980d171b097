"""deepspeed's own runner, which starts one launcher a host through pdsh and ssh."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.render.hosts import Gpus, Hosts, World, render_hosts
from dsforge.render.hosts.engine import LONGEST_WORD, check_room, include, pdsh_bytes
from dsforge.render.script import script

_ROOM = LONGEST_WORD - 16_384
"""Besides variables of the start: paths, and what deepspeed adds."""


def files(plan: Plan, hosts: Hosts | None, gpus: Gpus | None = None) -> dict[str, str]:
    """Return the hostfile and the script; the first host is where ranks meet."""
    assert hosts is not None, "refused by DSF155"
    needed = pdsh_bytes(World(hosts, gpus).ranks(), plan.launch.env)
    check_room(needed, _ROOM, len(hosts), "set launch.launcher=ssh, which has room for more")
    return {
        "hostfile": render_hosts(hosts),
        "launch.sh": script("pdsh", plan, include=include(gpus) if gpus else None),
    }
