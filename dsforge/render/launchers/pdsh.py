"""deepspeed's own runner, which starts one launcher a host through pdsh and ssh."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts, render_hosts
from dsforge.render.hosts.engine import LONGEST_WORD, check_room, pdsh_bytes
from dsforge.render.script import script

_ROOM = LONGEST_WORD - 16_384
"""Besides variables of the start: paths, and what deepspeed adds."""


def files(plan: Plan, hosts: Hosts | None) -> dict[str, str]:
    """Return the hostfile and the script; the first host is where ranks meet."""
    assert hosts is not None, "refused by DSF155"
    needed = pdsh_bytes(hosts, plan.launch.env)
    check_room(needed, _ROOM, len(hosts), "set launch.launcher=ssh, which has room for more")
    return {
        "hostfile": render_hosts(hosts),
        "launch.sh": script("pdsh", plan),
    }
