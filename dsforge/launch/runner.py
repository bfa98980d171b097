"""A started launcher program: the bundle's launch.sh, which execs what starts the ranks."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from dsforge.base.processes import ProcessId, identify
from dsforge.launch.types import Command


class Runner:
    """A started program, in a session of its own: a Ctrl-C at the terminal reaches dsforge alone."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        identity = identify(process.pid)
        assert identity is not None, "an unreaped child has an identity"
        self.identity: ProcessId = identity

    def return_code(self) -> int | None:
        """Return its exit code, -N for signal N, None while it runs. Never a proof of success."""
        return self._process.poll()


def start(command: Command, environ: Mapping[str, str], log: Path) -> Runner:
    """Start one attempt under a whole environment, its own words going to `log`; OSError when that fails."""
    with log.open("ab") as stream:
        process = subprocess.Popen(
            list(command.argv),
            env=dict(environ),
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    return Runner(process)
