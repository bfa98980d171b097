"""deepspeed's own runner on this machine."""

from __future__ import annotations

from dsforge.launch.launchers.base import Launcher
from dsforge.launch.launchers.runner import words_of_host
from dsforge.launch.types import HostStart, LaunchRequest, Started
from dsforge.records import environment
from dsforge.render.hosts.engine import named_world_info
from dsforge.render.script import PASSED_ON


def _starts(started: Started, request: LaunchRequest, hosts: tuple[str, ...]) -> tuple[HostStart, ...]:
    """Return the launcher that the runner becomes; it has all variables of this process, and these."""
    plan, environ = request.plan, started.environ
    names = (*PASSED_ON, environment.VISIBLE_DEVICES, "DS_ENV_FILE", *plan.launch.env)
    own = {name: environ[name] for name in names if name in environ}
    (host,) = hosts
    info = named_world_info({host: plan.layout.gpus_per_node})
    words = words_of_host(started.argv, info, None)
    return (HostStart(0, host, words, own, started.cwd),)


LAUNCHER = Launcher(runner="the deepspeed runner", starts=_starts, here=True)
