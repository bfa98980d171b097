"""The launchers that `dsforge launch` starts, by the name a plan gives them: one file each."""

from __future__ import annotations

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.launch.launchers import kubernetes, local, mpich, openmpi, pbs, pdsh, slurm, ssh, torchrun
from dsforge.launch.launchers.base import Launcher
from dsforge.plan.types import Plan

LAUNCHERS: dict[str, Launcher] = {
    "local": local.LAUNCHER,
    "ssh": ssh.LAUNCHER,
    "pdsh": pdsh.LAUNCHER,
    "openmpi": openmpi.LAUNCHER,
    "mpich": mpich.LAUNCHER,
    "torchrun": torchrun.LAUNCHER,
    "slurm": slurm.LAUNCHER,
    "kubernetes": kubernetes.LAUNCHER,
    "pbs": pbs.LAUNCHER,
}


def launcher_of(plan: Plan) -> Launcher:
    """Return what starts a plan's ranks; DsforgeError DSF201 where `dsforge launch` has nothing that does."""
    name = plan.launch.launcher
    if name is not None and name in LAUNCHERS:
        return LAUNCHERS[name]
    raise DsforgeError(
        "DSF201",
        f"`dsforge launch` does not start {name} jobs yet: they are rendered, and started by you",
        hint="`dsforge render RECIPE --out DIR`, then `bash DIR/launch.sh` from the recipe's folder",
        exit_code=ExitCode.FINDINGS,
    )
