"""deepspeed's own runner, which starts one launcher a host through pdsh and ssh.

Nothing but SIGKILL is ever sent to it: other signals make it end, on every host, whatever looks like one of
its launchers, other runs' included.
"""

from __future__ import annotations

import re

from dsforge.launch.launchers.base import Launcher
from dsforge.launch.launchers.runner import words_of_host
from dsforge.launch.types import HostStart, LaunchRequest, Started
from dsforge.render.hosts.engine import named_world_info
from dsforge.render.script import PASSED_ON


def _starts(started: Started, request: LaunchRequest, hosts: tuple[str, ...]) -> tuple[HostStart, ...]:
    """Return what the runner has pdsh start: every host exports the variables of the script's file."""
    plan = request.plan
    passed = {name: started.environ[name] for name in PASSED_ON if name in started.environ}
    # Where there is none the runner hands on its own: where it is started.
    environ = {"PYTHONPATH": started.cwd, **passed, **plan.launch.env}
    info = named_world_info(dict.fromkeys(hosts, plan.layout.gpus_per_node))
    return tuple(
        HostStart(node, host, words_of_host(started.argv, info, node), environ, started.cwd)
        for node, host in enumerate(hosts)
    )


LAUNCHER = Launcher(
    runner="the deepspeed runner",
    starts=_starts,
    programs=(("pdsh", "pdsh"), ("ssh", "openssh-client")),
    ssh="PDSH_SSH_ARGS_APPEND",
    # 255 is ssh's own code; any other is that of what it ran.
    lost=re.compile(r"^pdsh@[^:]+: (?P<host>\S+): ssh exited with exit code 255$"),
)
