"""One file a launcher: what of a bundle depends on the program that starts the ranks."""

from __future__ import annotations

from collections.abc import Callable

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.plan.types import Plan
from dsforge.records.gpus import FILE_NAME, ChosenGpus
from dsforge.render.hosts import Hosts, PlaceOf, World
from dsforge.render.launchers import local, mpich, openmpi, pdsh, slurm, ssh, torchrun

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
}


def launcher_files(plan: Plan, launcher: str, world: World | None, place_of: PlaceOf) -> dict[str, str]:
    """Return a launcher's files, and the chosen GPUs where some are; DsforgeError DSF091 on CPUs.

    No launcher is told of chosen GPUs: each counts its ranks, whose wrappers take theirs from the file.
    """
    made = LAUNCHERS[launcher](plan, world.hosts if world else None)
    if world is None or world.gpus is None:
        return made
    if plan.accelerator == "cpu":
        place = place_of("cluster.include" if plan.include is not None else "cluster.exclude")
        raise DsforgeError(
            "DSF091",
            "cluster.gpu is cpu: there are no GPUs to choose",
            place,
            "choose whole hosts",
            exit_code=ExitCode.FINDINGS,
        )
    return {**made, FILE_NAME: ChosenGpus(tuple(world.gpus.values())).to_json()}
