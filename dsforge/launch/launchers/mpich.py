"""mpiexec of MPICH (Hydra), which starts every rank over ssh."""

from __future__ import annotations

import re

from dsforge.launch.launchers.base import Launcher, ranks_of
from dsforge.records import environment


def _names(words: tuple[str, ...]) -> list[str]:
    return words[words.index("-genvlist") + 1].split(",")


LAUNCHER = Launcher(
    runner="mpiexec.hydra",
    starts=ranks_of(_names),
    programs=(("mpiexec.hydra", "mpich"), ("ssh", "openssh-client")),
    ssh=environment.SSH_ARGUMENTS,
    on_host="hydra_pmi_proxy",
    # ssh says it; mpiexec waits on.
    lost=re.compile(r"^Timeout, server (?P<host>\S+) not responding\.$"),
)
