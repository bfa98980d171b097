"""What the supervisor knows of a launcher besides the bundle's script, which starts it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launcher:
    """One way to start ranks.

    `runner`: what messages call the program that launch.sh becomes. `programs`: what it needs on this host,
    with the Debian package of each. `on_host`: the process that is the parent of a host's ranks. `here`: the
    hosts are this machine. `lost`: its line about a host that it lost, with a group `host`.
    """

    runner: str
    programs: tuple[tuple[str, str], ...] = ()
    on_host: str = "deepspeed.launcher.launch"
    here: bool = False
    lost: re.Pattern[str] | None = None
