"""Who a rank is, in the variables that PyTorch and DeepSpeed read, from those that a launcher sets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dsforge.records import environment

_PORTS = range(15_000, 30_000)
"""Below the ports that Linux gives to connections (net.ipv4.ip_local_port_range starts at 32768)."""
_BRACKETS = re.compile(r"\[([0-9]+)[^\]]*\]")


def identity(environ: Mapping[str, str]) -> dict[str, str]:
    """Return RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and their kin, if they are not right yet.

    ValueError names a variable of the launcher that is missing or no number.
    """
    if "RANK" in environ:
        return _torchrun(environ) if "GROUP_RANK" in environ and "CROSS_RANK" not in environ else {}
    # An MPI may have been started inside an allocation, whose variables are then its surroundings.
    for launcher, names in _MPI.items():
        if names.local_rank in environ:
            return _mpi(environ, launcher, names)
    return _slurm(environ) if "SLURM_PROCID" in environ else {}


@dataclass(frozen=True, slots=True)
class _Names:
    """Variables in which an MPI tells a process who it is."""

    rank: str
    size: str
    local_rank: str
    local_size: str


_MPI = {
    "mpirun": _Names(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "mpiexec.hydra": _Names("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
}


def _mpi(environ: Mapping[str, str], launcher: str, names: _Names) -> dict[str, str]:
    """A process of an MPI: hosts have equally many, and one host's stand together."""
    rank, size = _number(launcher, environ, names.rank), _number(launcher, environ, names.size)
    local_size = max(1, _number(launcher, environ, names.local_size))
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(_number(launcher, environ, names.local_rank)),
        "WORLD_SIZE": str(size),
        "LOCAL_SIZE": str(local_size),
        "CROSS_RANK": str(rank // local_size),
        "CROSS_SIZE": str(size // local_size),
    }


def _torchrun(environ: Mapping[str, str]) -> dict[str, str]:
    """A worker of torchrun, which has set most of it.

    Its c10d rendezvous numbers hosts as they come. Whoever started it says which node of the plan this one
    is: ranks meet at the agents' own store, which serves them under any numbers.
    """
    local_size = _number("torchrun", environ, "LOCAL_WORLD_SIZE")
    found = {
        "LOCAL_SIZE": str(local_size),
        "CROSS_RANK": str(_number("torchrun", environ, "GROUP_RANK")),
        "CROSS_SIZE": str(_number("torchrun", environ, "GROUP_WORLD_SIZE")),
    }
    if environment.NODE not in environ:
        return found
    node = _number("the fan-out", environ, environment.NODE)
    rank = str(node * local_size + _number("torchrun", environ, "LOCAL_RANK"))
    placed = {"RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": str(node), "CROSS_RANK": str(node)}
    return {**found, **placed}


def _slurm(environ: Mapping[str, str]) -> dict[str, str]:
    """A task of srun. A step may be smaller than its job, so its own variables come first."""
    world_size = _number("Slurm", environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    nodes = _number("Slurm", environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    job = _number("Slurm", environ, "SLURM_JOB_ID")
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    if not hosts:
        raise ValueError("Slurm did not set SLURM_STEP_NODELIST")
    return {
        "RANK": str(_number("Slurm", environ, "SLURM_PROCID")),
        "LOCAL_RANK": str(_number("Slurm", environ, "SLURM_LOCALID")),
        "WORLD_SIZE": str(world_size),
        "LOCAL_SIZE": str(world_size // max(1, nodes)),
        "CROSS_RANK": str(_number("Slurm", environ, "SLURM_NODEID")),
        "CROSS_SIZE": str(nodes),
        "MASTER_ADDR": environ.get("MASTER_ADDR") or first_host(hosts),
        # By job: two jobs may share a host.
        "MASTER_PORT": environ.get("MASTER_PORT") or str(_PORTS[job % len(_PORTS)]),
    }


_NUMBER = re.compile("[0-9]{1,18}")


def _number(launcher: str, environ: Mapping[str, str], *names: str) -> int:
    name = next((name for name in names if name in environ), names[0])
    text = environ.get(name)
    if text is None:
        raise ValueError(f"{launcher} did not set {name}")
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{launcher} set {name} to {text!r}, which is not a number")
    return int(text)


def first_host(node_list: str) -> str:
    """Return the first host of a node list as Slurm writes it: `node[07-09,12],login1` gives `node07`."""
    return _BRACKETS.sub(r"\1", node_list).partition(",")[0]
