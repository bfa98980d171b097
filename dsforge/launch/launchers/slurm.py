"""srun inside an allocation of Slurm, which is the planned world or starts nothing."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping

from dsforge.base import slurm
from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.launch.launchers.base import Launcher, ranks_of
from dsforge.launch.types import LaunchRequest
from dsforge.plan.types import Plan

_KILLED = re.compile(
    r"srun: error: \S+: tasks? ([0-9]{1,7}(?:-[0-9]{1,7})?(?:,[0-9]{1,7}(?:-[0-9]{1,7})?)*): "
    r"(?:Killed|Out Of Memory)$"
)
_COUNTS = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")


def in_allocation(environ: Mapping[str, str]) -> bool:
    """Tell whether a process with these variables runs in a job of Slurm."""
    return bool(environ.get(slurm.JOB_ID))


def hosts(request: LaunchRequest) -> tuple[str, ...]:
    """Return the hosts of the allocation by node, the last of them spares; none outside one.

    DsforgeError DSF240 for another world.
    """
    environ = request.environ
    if not in_allocation(environ):
        return ()
    try:
        found = slurm.hosts(environ.get("SLURM_JOB_NODELIST", ""))
    except slurm.SlurmError as error:
        raise _other_world(environ, f"its hosts cannot be told: {error}") from error
    if (difference := _difference(request.plan, len(found), environ)) is not None:
        raise _other_world(environ, difference)
    return found


def _difference(plan: Plan, nodes: int, environ: Mapping[str, str]) -> str | None:
    """Return in words how an allocation differs from the planned world, or None."""
    layout = plan.layout
    if nodes != layout.nodes + plan.spares:
        spares = f" and {plan.spares} spares" if plan.spares else ""
        return f"nodes: {nodes}, the plan has {layout.nodes}{spares}"
    if environ.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        return f"dsforge was itself started {environ['SLURM_STEP_NUM_TASKS']} times, by srun"
    gpus = environ.get("SLURM_GPUS_ON_NODE", "")
    if plan.accelerator == "cuda" and gpus.isdecimal() and int(gpus) < layout.gpus_per_node:
        return f"it has {gpus} GPUs a node, the plan needs {layout.gpus_per_node}"
    cores = (plan.launch.slurm.cpus_per_task if plan.launch.slurm else None) or 1
    least = min(_counts(environ.get("SLURM_JOB_CPUS_PER_NODE", "")), default=None)
    if least is not None and least < layout.gpus_per_node * cores:
        needed = f"{layout.gpus_per_node} ranks with {cores} each" if cores > 1 else f"{layout.gpus_per_node}"
        return f"it has a node with {least} CPUs, the plan needs {needed} there"
    return None


def _counts(text: str) -> list[int]:
    """Return the numbers in what Slurm writes as `8(x3),4`."""
    return [int(match[1]) for match in _COUNTS.finditer(text)]


def killed(line: str) -> list[int]:
    """Return the ranks of which srun says that they were killed, and by nothing that leaves a word of it."""
    match = _KILLED.match(line)
    found: list[int] = []
    for part in match[1].split(",") if match else ():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _other_world(environ: Mapping[str, str], difference: str) -> DsforgeError:
    return DsforgeError(
        "DSF240",
        f"the Slurm allocation {environ[slurm.JOB_ID]} is not the planned world: {difference}",
        hint="ask Slurm for what `dsforge render` writes into launch.sh, or have a job submitted that fits: "
        f"`env -u {slurm.JOB_ID} dsforge launch`",
        exit_code=ExitCode.ENVIRONMENT,
    )


def _names(words: tuple[str, ...]) -> list[str]:
    (exported,) = [word.partition("=")[2] for word in words if word.startswith("--export=")]
    return exported.split(",")


LAUNCHER = Launcher(
    runner="srun",
    starts=ranks_of(_names),
    programs=tuple((name, "slurm-client") for name in ("srun", "sbatch", "squeue", "scancel", "scontrol")),
    hosts=hosts,
    lost=re.compile(r"^srun: error: Node failure on (?P<host>\S+)$"),
    killed=killed,
    keeper="slurmstepd",
    on_host="slurmstepd",
    notice=signal.SIGUSR1,
)
