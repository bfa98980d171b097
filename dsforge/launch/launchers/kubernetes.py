"""A job object of Kubernetes, whose pods are hosts of their own with the software of an image."""

from __future__ import annotations

import re
import signal

from dsforge.launch.kubernetes.check import ask_cluster, check_request
from dsforge.launch.kubernetes.job import KILLED, LOST, POD, READY
from dsforge.launch.launchers.base import Launcher
from dsforge.launch.types import LaunchRequest
from dsforge.render.torchrun import MODULE

_KILLED = re.compile(KILLED.format(first="([0-9]{1,7})", last="([0-9]{1,7})"))


def hosts(request: LaunchRequest) -> tuple[str, ...]:
    """Return what the pods are called by node: their hosts are known once they run, and do not matter."""
    return tuple(POD.format(node) for node in range(request.plan.layout.nodes))


def killed(line: str) -> list[int]:
    """Return the ranks of which the pods' states say that they were killed."""
    match = _KILLED.match(line)
    return list(range(int(match[1]), int(match[2]) + 1)) if match else []


LAUNCHER = Launcher(
    runner="the job on Kubernetes",
    hosts=hosts,
    lost=re.compile(LOST.format(host=r"(?P<host>\S+)")),
    killed=killed,
    keeper="its container",
    on_host=MODULE,
    accepts=check_request,
    asks=ask_cluster,
    software=False,
    ready=READY,
    recall=signal.SIGQUIT,
)
