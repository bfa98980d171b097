"""How a program of ours is started on another host over ssh: one command for launching and for looking."""

from __future__ import annotations

import resource
import shlex
import sys
from collections.abc import Mapping

from dsforge.base import shell

WIDTH = 64
"""Hosts that are being reached at a time; the others wait until these have answered."""
CONNECT_SECONDS = 20
LOST_CODE = 255
"""ssh's own exit code; any other is that of what it ran."""
_OTHER_FILES = 64
"""Besides those that stay open: ssh's own while it starts, ours."""


def ssh_command(
    host: str, module: str, environ: Mapping[str, str], arguments: str, connect_seconds: int = CONNECT_SECONDS
) -> list[str]:
    """Return what runs a module of ours on a host, under this Python's path; nothing of a job stands in it.

    `arguments`: the user's own for ssh, as a shell would split them.
    """
    python_path = environ.get("PYTHONPATH")
    path = [f"PYTHONPATH={python_path}"] if python_path else []
    remote = shell.join(["env", *path, sys.executable, "-u", "-m", module])
    options = (
        "BatchMode=yes",
        f"ConnectTimeout={connect_seconds}",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
    )
    words = [word for option in options for word in ("-o", option)]
    return ["ssh", "-T", *shlex.split(arguments), *words, "--", host, f"exec {remote}"]


def make_room(files: int) -> None:
    """Let this process hold so many files open; ValueError where the system's hard limit does not."""
    needed = files + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and hard < needed:
        raise ValueError(f"{needed} open files are needed, `ulimit -Hn` allows {hard}: raise it")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
