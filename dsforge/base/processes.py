"""Processes by identity: an id alone may be reused, an id with its start time may not. Linux only."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process: `start` is its start in clock ticks since boot, field 22 of proc(5) stat."""

    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Status:
    """A process at one moment: its state in proc(5) stat, and the kernel's function that it sleeps in."""

    state: str
    channel: str


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third (state) on, or None without such a process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The second field is the program's name in brackets and may itself hold spaces and brackets.
    return text.rpartition(")")[2].split()


def identify(pid: int) -> ProcessId | None:
    """Return the identity of a process that runs or waits to be reaped, or None."""
    fields = _stat_fields(pid)
    return ProcessId(pid, int(fields[19])) if fields else None


def is_alive(process: ProcessId) -> bool:
    """Tell whether exactly this process still runs; one that only waits to be reaped does not."""
    fields = _stat_fields(process.pid)
    return fields is not None and int(fields[19]) == process.start and fields[0] not in ("Z", "X")


def status_of(process: ProcessId) -> Status | None:
    """Return what exactly this process does, None when it has ended."""
    fields = _stat_fields(process.pid)
    if fields is None or int(fields[19]) != process.start or fields[0] in ("Z", "X"):
        return None
    try:
        channel = (_PROC / str(process.pid) / "wchan").read_text("ascii", "replace").strip()
    except OSError:
        channel = ""
    return Status(fields[0], "" if channel == "0" else channel)


def cpu_seconds_of_session(session: int) -> float:
    """Return the CPU time that the live processes of a session have used."""
    found = (_stat_fields(pid) for pid in _all_pids())
    ticks = sum(int(one[11]) + int(one[12]) for one in found if one is not None and int(one[3]) == session)
    return ticks / os.sysconf("SC_CLK_TCK")


def end_session(session: int) -> None:
    """Kill every other process of a session that we may kill, also those that they start meanwhile."""
    killed = 1
    while killed:
        found = [one for one in everybody() if _session_of(one.pid) == session]
        killed = sum(send_signal(one, signal.SIGKILL) for one in found)


def _session_of(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[3]) if fields else None


def parent_of(pid: int) -> int | None:
    """Return the id of a process's parent, or None when the process is gone."""
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else None


def children_of(pid: int) -> list[int]:
    """Return the ids of a process's direct children, zombies included."""
    return [child for child in _all_pids() if parent_of(child) == pid]


def reap(sessions: set[int], *, but: int) -> None:
    """Collect ended children of these sessions, so that adopted orphans do not stay as zombies.

    `but` is left: the child whose status somebody else will ask for, and which would be lost here.
    """
    for child in children_of(os.getpid()):
        fields = _stat_fields(child)
        if child != but and fields is not None and fields[0] == "Z" and int(fields[3]) in sessions:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def send_signal(process: ProcessId, number: int) -> bool:
    """Signal exactly this process, never one that reuses its id; False when it is gone or not ours."""
    try:
        handle = os.pidfd_open(process.pid)
    except (OSError, OverflowError):
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def opens(process: ProcessId, path: Path) -> bool:
    """Tell whether a live process that we may look into has this very file open, whatever its name is now."""
    try:
        wanted = path.stat()
        handles = list((_PROC / str(process.pid) / "fd").iterdir())
    except OSError:
        return False
    return any(_is_same(handle, wanted) for handle in handles) and is_alive(process)


def variable_of(process: ProcessId, name: str) -> str | None:
    """Return a variable that a process was started with; None without it or without the right to look."""
    try:
        environment = (_PROC / str(process.pid) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (pair.partition(b"=") for pair in environment.split(b"\0"))
    return next((os.fsdecode(value) for key, _, value in pairs if key == name.encode()), None)


def carries(process: ProcessId, name: str, value: str) -> bool:
    """Tell whether a live process was started with this environment variable at this value."""
    return variable_of(process, name) == value and is_alive(process)


def carrying(name: str, value: str) -> list[ProcessId]:
    """Return every other live process that carries an environment variable at this value."""
    return [process for process in everybody() if carries(process, name, value)]


def everybody() -> Iterator[ProcessId]:
    """Return every process of this host but this one."""
    found = (identify(pid) for pid in _all_pids() if pid != os.getpid())
    return (process for process in found if process is not None)


def command_of(pid: int) -> str:
    """Return a process's command line for a message; empty when it is gone."""
    try:
        return (
            (_PROC / str(pid) / "cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
            .strip()
        )
    except OSError:
        return ""


def has_open(path: Path) -> bool:
    """Tell whether any process that we may look into has this file open."""
    wanted = str(path.resolve())
    return any(_opens(pid, wanted) for pid in _all_pids())


def boot_id() -> str:
    """Return the kernel's mark of this boot: identities of an earlier boot mean nothing."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


@cache
def machine() -> str:
    """Return the mark of this host's process ids: they name the same processes only where it is the same.

    The kernel's boot, and the namespace of process ids, for a container counts its own.
    """
    try:
        return f"{boot_id()}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return boot_id()


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9; a number without a name as `signal 42`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _all_pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _opens(pid: int, wanted: str) -> bool:
    folder = _PROC / str(pid) / "fd"
    try:
        return any(str(handle.readlink()) == wanted for handle in folder.iterdir())
    except OSError:
        return False


def _is_same(handle: Path, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(handle.stat(), wanted)
    except OSError:
        return False
