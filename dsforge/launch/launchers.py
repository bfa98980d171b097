"""The launchers this build has, by the name a plan gives them: one file each, one interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.base.processes import ProcessId
from dsforge.launch import local
from dsforge.launch.types import Command
from dsforge.plan.types import Plan


class Runner(Protocol):
    """A started launcher program."""

    identity: ProcessId

    def return_code(self) -> int | None:
        """Return its exit code, -N for signal N, None while it runs. Never a proof of success."""
        ...


Start = Callable[[Command, Mapping[str, str], Path], Runner]

LAUNCHERS: dict[str, Start] = {"local": local.start}


def launcher_of(plan: Plan) -> Start:
    """Return what starts a plan's ranks; DsforgeError DSF201 where `dsforge launch` has nothing that does."""
    name = plan.launch.launcher
    if name is not None and name in LAUNCHERS:
        return LAUNCHERS[name]
    start = "sbatch DIR/launch.sh" if name == "slurm" else "bash DIR/launch.sh"
    raise DsforgeError(
        "DSF201",
        f"`dsforge launch` starts ranks on this machine; {name} jobs are rendered, and started by you",
        hint=f"`dsforge render RECIPE --out DIR`, then `{start}` from the recipe's folder",
        exit_code=ExitCode.FINDINGS,
    )
