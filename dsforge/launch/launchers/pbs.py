"""Our own fan-out over ssh, to the hosts of a PBS job, which is the planned world or starts nothing."""

from __future__ import annotations

import signal
from dataclasses import replace

from dsforge.base import pbs
from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.launch.launchers import ssh
from dsforge.launch.types import LaunchRequest
from dsforge.render.hosts.jobs import from_pbs


def hosts(request: LaunchRequest) -> tuple[str, ...]:
    """Return the hosts of the job by node, none outside of one; DsforgeError DSF243 for another world."""
    environ, layout = request.environ, request.plan.layout
    if not pbs.SCHEDULER.holds(environ):
        return ()
    found, _ = from_pbs(environ, None)
    difference = None
    if len(found) != layout.nodes:
        difference = f"nodes: {len(found)}, the plan has {layout.nodes}"
    for host, slots in found.items():
        if slots != layout.gpus_per_node and difference is None:
            difference = f"{host} is named {slots} times, the plan has {layout.gpus_per_node} ranks there"
    if difference is not None:
        raise DsforgeError(
            "DSF243",
            f"the PBS job {environ[pbs.JOB_ID]} is not the planned world: {difference}",
            hint="ask PBS for what `dsforge render` writes into launch.sh, or have a job submitted: "
            f"`env -u {pbs.JOB_ID} dsforge launch`",
            exit_code=ExitCode.ENVIRONMENT,
        )
    return tuple(found)


LAUNCHER = replace(
    ssh.LAUNCHER,
    programs=(*ssh.LAUNCHER.programs, *((name, "openpbs") for name in ("qsub", "qstat", "qsig", "qdel"))),
    hosts=hosts,
    notice=signal.SIGUSR1,
    starts=None,  # where is known in the job
)
