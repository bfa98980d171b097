"""What the supervisor knows of a launcher besides the bundle's script, which starts it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launcher:
    """One way to start ranks.

    `runner`: what messages call the program that launch.sh becomes. `programs`: what it needs on this host,
    with the Debian package of each. `here`: the hosts are this machine. `lost`: its line about a host that it
    lost, with a group `host`. `ssh`: the variable with the user's own arguments of ssh, where the hosts are
    reached by it. `on_host`: the process that is the parent of a host's ranks.
    """

    runner: str
    programs: tuple[tuple[str, str], ...] = ()
    here: bool = False
    lost: re.Pattern[str] | None = None
    ssh: str | None = None
    on_host: str = "deepspeed.launcher.launch"
