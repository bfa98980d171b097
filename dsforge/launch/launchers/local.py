"""deepspeed's own runner on this machine."""

from __future__ import annotations

from dsforge.launch.launchers.base import Launcher

LAUNCHER = Launcher(runner="the deepspeed runner", here=True)
