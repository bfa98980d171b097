"""One file a launcher: what of a bundle depends on the program that starts the ranks."""

from __future__ import annotations

from collections.abc import Callable

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.plan.types import Plan
from dsforge.render.hosts import Gpus, Hosts, PlaceOf, World
from dsforge.render.launchers import kubernetes, local, mpich, openmpi, pbs, pdsh, slurm, ssh, torchrun

Files = Callable[[Plan, Hosts | None], dict[str, str]]
"""From a plan, and the hosts where a hostfile names them, to the launcher's files by name."""

LAUNCHERS: dict[str, Files] = {
    "local": local.files,
    "ssh": ssh.files,
    "pdsh": pdsh.files,
    "openmpi": openmpi.files,
    "mpich": mpich.files,
    "torchrun": torchrun.files,
    "slurm": slurm.files,
    "kubernetes": kubernetes.files,
    "pbs": pbs.files,
}

FilesOfGpus = Callable[[Plan, Hosts, Gpus], dict[str, str]]
"""The same where some of the hosts' GPUs are chosen."""

CHOOSES_GPUS: dict[str, FilesOfGpus] = {"ssh": ssh.files, "pdsh": pdsh.files}


def launcher_files(plan: Plan, launcher: str, world: World | None, place_of: PlaceOf) -> dict[str, str]:
    """Return a launcher's files; DsforgeError DSF091 where it cannot start the chosen world."""
    if world is None or world.gpus is None:
        return LAUNCHERS[launcher](plan, world.hosts if world else None)
    place = place_of("cluster.include" if plan.include is not None else "cluster.exclude")
    if plan.accelerator == "cpu":
        message, hint = "cluster.gpu is cpu: there are no GPUs to choose", "choose whole hosts"
    elif launcher not in CHOOSES_GPUS:
        message = f"the {launcher} launcher takes the first GPUs of a host, it cannot take chosen ones"
        hint = "choose whole hosts, " + (
            "and set CUDA_VISIBLE_DEVICES" if launcher == "local" else "or set launch.launcher=ssh"
        )
    else:
        return CHOOSES_GPUS[launcher](plan, world.hosts, world.gpus)
    raise DsforgeError("DSF091", message, place, hint, exit_code=ExitCode.FINDINGS)
