"""What the kernel's out-of-memory killer has done around a process: counters that tell of nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class OomWatch:
    """The counter of the control group that a process is in, and how it stood.

    Version 2 counts in memory.events, version 1 in memory.oom_control (Linux, admin-guide/cgroup-v2 and
    cgroup-v1/memory); without either, the machine as a whole does, in /proc/vmstat. None counts a SIGKILL of
    anybody else.
    """

    counter: Path
    before: int

    def has_killed(self) -> bool:
        """Tell whether the kernel has ended a process of the group for want of memory since then."""
        return _count(self.counter) > self.before


def watch(pid: int) -> OomWatch:
    """Begin to watch the group of a process, this machine's where the group has no counter."""
    found = next((path for path in _candidates(pid) if path.exists()), _PROC / "vmstat")
    return OomWatch(found, _count(found))


def _candidates(pid: int) -> list[Path]:
    """Return where the counter of a process's group may be: its own or, in a container, a group above it."""
    try:
        lines = (_PROC / str(pid) / "cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for _, controllers, group in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if "memory" in controllers.split(","):
            root, name = _CGROUPS / "memory", "memory.oom_control"
        elif not controllers:
            root, name = _CGROUPS, "memory.events"
        else:
            continue
        inner = Path(group.lstrip("/"))
        found += [root / folder / name for folder in (inner, *inner.parents)]
    return found


def _count(counter: Path) -> int:
    try:
        lines = counter.read_text("ascii").splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    except (OSError, ValueError, IndexError):
        return 0
