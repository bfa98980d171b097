"""What the supervisor knows of a launcher besides the bundle's script, which starts it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dsforge.launch.types import HostStart, LaunchRequest, Started
from dsforge.launch.world import planned_hosts
from dsforge.render.hosts import SPARES_FILE, parse_hostfile


def hosts_of_bundle(request: LaunchRequest) -> tuple[str, ...]:
    """Return the hosts of the bundle's hostfile, then its spares; DsforgeError for another world."""
    files = request.bundle.files
    spares = parse_hostfile(files[SPARES_FILE], f"bundle/{SPARES_FILE}") if SPARES_FILE in files else {}
    return (*planned_hosts(request.plan, files["hostfile"]), *spares)


Starts = Callable[[Started, LaunchRequest, tuple[str, ...]], tuple[HostStart, ...]]
_RANKS = ("-m", "dsforge.rank.main")


def ranks_of(names: Callable[[tuple[str, ...]], Iterable[str]]) -> Starts:
    """Return how to tell what a program starts that starts every rank itself.

    `names`: from its arguments to the variables that it hands on.
    """

    def starts(started: Started, request: LaunchRequest, hosts: tuple[str, ...]) -> tuple[HostStart, ...]:
        words, environ = started.argv, started.environ
        options = next(index for index in range(len(words)) if words[index : index + 2] == _RANKS)
        python = max(index for index in range(options) if not words[index].startswith("-"))
        handed = {name: environ[name] for name in names(words[:python]) if name in environ}
        layout = request.plan.layout
        return tuple(
            HostStart(node, host, words[python:], handed, started.cwd, layout.gpus_per_node)
            for node, host in enumerate(hosts or (None,) * layout.nodes)
        )

    return starts


@dataclass(frozen=True, slots=True)
class Launcher:
    """One way to start ranks.

    `runner`: what messages call the program that launch.sh becomes. `programs`: what it needs on this host,
    with the Debian package of each. `here`: the hosts are this machine. `hosts`: the hosts by node, then the
    spares; raises DsforgeError when they are not the planned world. `lost`: its line about a host that it
    lost, with a group `host`. `killed`: from a line of its log to the ranks of which it says that they were
    killed. `keeper`: a scheduler's process around each host's ranks, which leaves nothing of them when it
    ends; the host counts as lost when it dies. `notice`: the signal by which that scheduler says that
    the job's time is nearly up. `ssh`: the variable with the user's own arguments of ssh, where the hosts are
    reached by it. `on_host`: the process that is the parent of a host's ranks. `starts`: what runs on each
    host, once launch.sh has become what it becomes; None where it does not become a launcher.
    """

    runner: str
    programs: tuple[tuple[str, str], ...] = ()
    here: bool = False
    hosts: Callable[[LaunchRequest], tuple[str, ...]] = hosts_of_bundle
    lost: re.Pattern[str] | None = None
    killed: Callable[[str], list[int]] | None = None
    keeper: str | None = None
    notice: int | None = None
    ssh: str | None = None
    on_host: str = "deepspeed.launcher.launch"
    starts: Starts | None = None
