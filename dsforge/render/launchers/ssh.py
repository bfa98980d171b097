"""Our own fan-out over ssh (dsforge.launch.fan_out), which starts deepspeed's launcher on every host."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts, render_hosts
from dsforge.render.script import PASSED_ON, script


def files(plan: Plan, hosts: Hosts | None) -> dict[str, str]:
    """Return the hostfile and the script; the first host is where ranks meet."""
    assert hosts is not None, "refused by DSF155"
    names = sorted({*PASSED_ON, *plan.launch.env, *plan.launch.env_from})
    return {
        "hostfile": render_hosts(hosts),
        "launch.sh": script("ssh", plan, dsforge='"$dsforge_python" -m dsforge.cli', handed_over=names),
    }
