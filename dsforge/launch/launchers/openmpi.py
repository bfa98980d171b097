"""mpirun of Open MPI, which starts every rank over ssh."""

from __future__ import annotations

import re
from itertools import pairwise

from dsforge.launch.launchers.base import Launcher, ranks_of
from dsforge.records import environment


def _names(words: tuple[str, ...]) -> list[str]:
    return [name for option, name in pairwise(words) if option == "-x"]


LAUNCHER = Launcher(
    runner="mpirun",
    starts=ranks_of(_names),
    programs=(("mpirun", "openmpi-bin"), ("ssh", "openssh-client")),
    ssh=environment.SSH_ARGUMENTS,
    on_host="orted",
    # The second of two lines; the first is about the host that mpirun runs on.
    lost=re.compile(r"^  Remote daemon: \S+ on node (?P<host>\S+)$"),
)
