"""torchrun on every host, started by our own fan-out over ssh (dsforge.launch.fan_out)."""

from __future__ import annotations

from dataclasses import replace

from dsforge.launch.launchers import ssh

LAUNCHER = replace(ssh.LAUNCHER, on_host="torch.distributed.run")
