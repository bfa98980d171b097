"""Who a rank is, in the variables that PyTorch and DeepSpeed read, from those that a launcher sets."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PORTS = range(15_000, 30_000)
"""Below the ports that Linux gives to connections (net.ipv4.ip_local_port_range starts at 32768)."""
_BRACKETS = re.compile(r"\[([0-9]+)[^\]]*\]")


def identity(environ: Mapping[str, str]) -> dict[str, str]:
    """Return RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and their kin, unless RANK is set.

    ValueError names a variable of the launcher that is missing or no number.
    """
    if "RANK" in environ or "SLURM_PROCID" not in environ:
        return {}
    return _slurm(environ)


def _slurm(environ: Mapping[str, str]) -> dict[str, str]:
    """A task of srun. A step may be smaller than its job, so its own variables come first."""
    world_size = _number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    nodes = _number(environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    job = _number(environ, "SLURM_JOB_ID")
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    if not hosts:
        raise ValueError("Slurm did not set SLURM_STEP_NODELIST")
    return {
        "RANK": str(_number(environ, "SLURM_PROCID")),
        "LOCAL_RANK": str(_number(environ, "SLURM_LOCALID")),
        "WORLD_SIZE": str(world_size),
        "LOCAL_SIZE": str(world_size // max(1, nodes)),
        "CROSS_RANK": str(_number(environ, "SLURM_NODEID")),
        "CROSS_SIZE": str(nodes),
        "MASTER_ADDR": environ.get("MASTER_ADDR") or first_host(hosts),
        # By job: two jobs may share a host.
        "MASTER_PORT": environ.get("MASTER_PORT") or str(_PORTS[job % len(_PORTS)]),
    }


_NUMBER = re.compile("[0-9]{1,18}")


def _number(environ: Mapping[str, str], *names: str) -> int:
    name = next((name for name in names if name in environ), names[0])
    text = environ.get(name)
    if text is None:
        raise ValueError(f"Slurm did not set {name}")
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"Slurm set {name} to {text!r}, which is not a number")
    return int(text)


def first_host(node_list: str) -> str:
    """Return the first host of a node list as Slurm writes it: `node[07-09,12],login1` gives `node07`."""
    return _BRACKETS.sub(r"\1", node_list).partition(",")[0]
