"""deepspeed's own runner, which starts one launcher a host through pdsh and ssh.

Nothing but SIGKILL is ever sent to it: other signals make it end, on every host, whatever looks like one of
its launchers, other runs' included.
"""

from __future__ import annotations

import re

from dsforge.launch.launchers.base import Launcher

LAUNCHER = Launcher(
    runner="the deepspeed runner",
    programs=(("pdsh", "pdsh"), ("ssh", "openssh-client")),
    ssh="PDSH_SSH_ARGS_APPEND",
    # 255 is ssh's own code; any other is that of what it ran.
    lost=re.compile(r"^pdsh@[^:]+: (?P<host>\S+): ssh exited with exit code 255$"),
)
