"""The launchers this build has, by the name a plan gives them: one file each, one interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from dsforge.base.processes import ProcessId
from dsforge.launch import local
from dsforge.launch.types import Command


class Runner(Protocol):
    """A started launcher program."""

    identity: ProcessId

    def return_code(self) -> int | None:
        """Return its exit code, -N for signal N, None while it runs. Never a proof of success."""
        ...


Start = Callable[[Command, Mapping[str, str], Path], Runner]

LAUNCHERS: dict[str, Start] = {"local": local.start}
