"""deepspeed's own runner, which starts one launcher a host through pdsh and ssh."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts, render_hosts
from dsforge.render.script import script


def files(plan: Plan, hosts: Hosts | None) -> dict[str, str]:
    """Return the hostfile and the script; the first host is where ranks meet."""
    assert hosts is not None, "refused by DSF155"
    return {"hostfile": render_hosts(hosts), "launch.sh": script("pdsh", plan, first_host=next(iter(hosts)))}
