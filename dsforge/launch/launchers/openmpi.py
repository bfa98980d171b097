"""mpirun of Open MPI, which starts every rank over ssh."""

from __future__ import annotations

import re

from dsforge.launch.launchers.base import Launcher
from dsforge.records import environment

LAUNCHER = Launcher(
    runner="mpirun",
    programs=(("mpirun", "openmpi-bin"), ("ssh", "openssh-client")),
    ssh=environment.SSH_ARGUMENTS,
    on_host="orted",
    # The second of two lines; the first is about the host that mpirun runs on.
    lost=re.compile(r"^  Remote daemon: \S+ on node (?P<host>\S+)$"),
)
