"""deepspeed's own runner on this machine."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts, render_hosts
from dsforge.render.script import script


def files(plan: Plan, hosts: Hosts | None) -> dict[str, str]:
    """Return the hostfile and the script; without hosts the one node is this machine."""
    there = hosts or {"localhost": plan.layout.gpus_per_node}
    return {"hostfile": render_hosts(there), "launch.sh": script("local", plan)}
