"""From what tools print of a process to the calls of its threads. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from dsforge.records.stacks import Frame

_THREAD = re.compile(
    r"^(?:Current thread|Thread) (?P<id>0x[0-9a-f]+)(?: \[(?P<name>[^\]]*)\])? \(most recent"
)
_CALL = re.compile(r'^  File "(?P<file>.*)", line (?P<line>[0-9]{1,9}) in (?P<function>.+)$')


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a process, the innermost call first."""

    name: str
    is_main: bool
    frames: tuple[Frame, ...]


def from_py_spy(text: str, pid: int) -> list[Thread]:
    """Return the threads in the output of `py-spy dump --json`; ValueError for anything else."""
    said = json.loads(text)
    if not isinstance(said, list):
        raise ValueError("not what py-spy says of a process: no list of threads")
    try:
        return [_thread(one, pid) for one in said]
    except (KeyError, TypeError) as error:
        raise ValueError(f"not what py-spy says of a process: {error!r}") from error


def _thread(said: dict[str, Any], pid: int) -> Thread:
    name = said["thread_name"]
    return Thread(
        name=str(name or said["os_thread_id"]),
        # It may number threads of a container otherwise than their own host does.
        is_main=said["os_thread_id"] == pid or name == "MainThread",
        frames=tuple(
            Frame(str(call["name"]), str(call["filename"]), int(call["line"])) for call in said["frames"]
        ),
    )


def from_faulthandler(text: str) -> list[Thread]:
    """Return the threads in what faulthandler writes: the main one, the oldest, last, unless it cut them."""
    found: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if (thread := _THREAD.match(line)) is not None:
            found.append((thread["name"] or thread["id"], []))
        elif found and (call := _CALL.match(line)) is not None:
            found[-1][1].append(Frame(call["function"], call["file"], int(call["line"])))
    main = None if "..." in text.splitlines() else len(found) - 1
    return [Thread(name, number == main, tuple(frames)) for number, (name, frames) in enumerate(found)]
