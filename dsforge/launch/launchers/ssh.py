"""Our own fan-out over ssh (dsforge.launch.fan_out), which starts deepspeed's launcher on every host."""

from __future__ import annotations

import re

from dsforge.launch.fan_out import LOST
from dsforge.launch.launchers.base import Launcher
from dsforge.records import environment

LAUNCHER = Launcher(
    runner="the fan-out over ssh",
    programs=(("ssh", "openssh-client"),),
    ssh=environment.SSH_ARGUMENTS,
    lost=re.compile(LOST.format(host=r"(?P<host>\S+)")),
)
