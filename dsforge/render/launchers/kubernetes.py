"""A job object of Kubernetes, which chooses the hosts and starts a pod on each."""

from __future__ import annotations

from dsforge.base.canonical import dumps
from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts
from dsforge.render.kubernetes import KINDS, MPI_SCRIPT, manifest
from dsforge.render.launchers.over_ssh import handed_over
from dsforge.render.script import script

MANIFEST = "job.json"


def files(plan: Plan, _hosts: Hosts | None) -> dict[str, str]:
    """Return the job object and the script that submits it. There is no hostfile: pods have no hosts yet."""
    options = plan.launch.kubernetes
    assert options is not None, "planned for Kubernetes"
    python = '"$dsforge_python" -m dsforge.cli'
    kind = KINDS[options.kind].kind
    made = {
        MANIFEST: dumps(manifest(plan)),
        "launch.sh": script("kubernetes", plan, dsforge=python, kind=kind, manifest=MANIFEST),
    }
    if options.kind == "mpijob":
        made[MPI_SCRIPT] = script("mpijob", plan, dsforge=python, interface=None, **handed_over(plan))
    return made
