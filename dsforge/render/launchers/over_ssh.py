"""What launchers share that reach the hosts of a hostfile over ssh."""

from __future__ import annotations

import re
from pathlib import Path

from dsforge.plan.types import Plan
from dsforge.records.run_dir import AttemptDir
from dsforge.render.hosts import Hosts, render_hosts
from dsforge.render.script import PASSED_ON, script

_INTERFACE = re.compile("[A-Za-z0-9._-]+")


def over_ssh(launcher: str, plan: Plan, hosts: Hosts | None, **facts: object) -> dict[str, str]:
    """Return the hostfile and the script; the first host is where ranks meet."""
    assert hosts is not None, "refused by DSF155"
    shared = {
        "dsforge": '"$dsforge_python" -m dsforge.cli',
        "handed_over": sorted({*PASSED_ON, *plan.launch.env, *plan.launch.env_from}),
        "stop_request": AttemptDir(Path()).stop_request.name,
    }
    return {"hostfile": render_hosts(hosts), "launch.sh": script(launcher, plan, **shared, **facts)}


def interface(plan: Plan) -> str | None:
    """Return the network interface that a recipe names for the ranks; None where it names none or several."""
    env = plan.launch.env
    nccl = env.get("NCCL_SOCKET_IFNAME", "")
    # NCCL takes what begins with it, unless it stands behind `=`.
    name = env.get("GLOO_SOCKET_IFNAME") or (nccl[1:] if nccl.startswith("=") else "")
    return name if _INTERFACE.fullmatch(name) else None
