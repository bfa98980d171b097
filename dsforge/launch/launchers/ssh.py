"""Our own fan-out over ssh (dsforge.launch.fan_out), which starts deepspeed's launcher on every host."""

from __future__ import annotations

import re

from dsforge.launch.fan_out import LOST, FanOut, read_words
from dsforge.launch.launchers.base import Launcher
from dsforge.launch.types import HostStart, LaunchRequest, Started
from dsforge.records import environment


def _starts(started: Started, request: LaunchRequest, hosts: tuple[str, ...]) -> tuple[HostStart, ...]:
    """Return what the fan-out itself makes of its words."""
    words = started.argv[started.argv.index("dsforge.launch.fan_out") + 1 :]
    ranks = dict.fromkeys(hosts, request.plan.layout.gpus_per_node)
    fan_out = FanOut(ranks, read_words(words), started.environ, started.cwd)
    return tuple(
        HostStart(node, host, job.argv, job.environ, job.cwd, through=tuple(fan_out.command(host)))
        for node, host in enumerate(hosts)
        for job in (fan_out.job(node, host),)
    )


LAUNCHER = Launcher(
    runner="the fan-out over ssh",
    starts=_starts,
    programs=(("ssh", "openssh-client"),),
    ssh=environment.SSH_ARGUMENTS,
    lost=re.compile(LOST.format(host=r"(?P<host>\S+)")),
)
