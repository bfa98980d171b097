"""What this machine has for a launch, and every reason for which it could not run the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from dsforge.base.errors import DsforgeError
from dsforge.catalog.engines.flavours import flavour_of
from dsforge.launch import machine, op_cache
from dsforge.launch.checkout import check_options
from dsforge.launch.checkpoints import check_checkpoints
from dsforge.launch.external_resume import check_resume
from dsforge.launch.launchers import launcher_of
from dsforge.launch.offloading import check_disk
from dsforge.launch.program import check_program
from dsforge.launch.types import LaunchRequest
from dsforge.launch.world import check_gpus, check_here
from dsforge.train.sinks.registry import check_sinks

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found. `refusals`: what keeps the plan from running here, the first the most telling."""

    bash: Path | None
    deepspeed: Path | None
    ops_dir: Path
    hosts: tuple[str, ...]
    spares: tuple[str, ...]
    refusals: tuple[DsforgeError, ...]


def look(request: LaunchRequest) -> Preflight:
    """Look at this machine, touching nothing; DsforgeError when the hosts are not the planned world."""
    plan = request.plan
    environ = {**request.environ, **plan.launch.env}
    launcher = launcher_of(plan)
    hosts = launcher.hosts(request)
    refusals: list[DsforgeError] = []

    def tried(check: Callable[[], T]) -> T | None:
        try:
            return check()
        except DsforgeError as error:
            refusals.append(error)
            return None

    if launcher.here:
        tried(lambda: check_here(hosts))
        tried(lambda: check_disk(request))
        tried(lambda: check_gpus(plan, environ, request.bundle.chosen_gpus))
    for name, package in launcher.programs:
        tried(partial(machine.check_installed, name, package, environ))
    tried(lambda: machine.check_secrets(plan.launch.env_from, request.environ))
    tried(lambda: check_sinks(plan.sinks))
    if (accepts := launcher.accepts) is not None:
        tried(lambda: accepts(request))
    bash = tried(machine.find_bash)
    deepspeed = tried(machine.find_deepspeed) if launcher.software else None
    if plan.external is None:
        tried(lambda: check_checkpoints(request))
    else:
        program = plan.external
        tried(lambda: check_program(program, request.recipe_root))
        tried(lambda: check_options(program, request.recipe_root))
        tried(lambda: check_resume(request, flavour_of(program.flavour).checkpoint_marks))
    nodes = plan.layout.nodes
    return Preflight(
        bash,
        deepspeed,
        op_cache.ops_dir(request.environ),
        hosts[:nodes],
        hosts[nodes:],
        tuple(refusals),
    )
