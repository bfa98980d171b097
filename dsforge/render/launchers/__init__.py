"""One file a launcher: what of a bundle depends on the program that starts the ranks."""

from __future__ import annotations

from collections.abc import Callable

from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts
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
