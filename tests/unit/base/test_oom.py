"""The kernel's out-of-memory killer, for real: in a small control group of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsforge.base import oom

LIMIT_BYTES = 64 * 2**20
GROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)
WAITS = "import sys; sys.stdin.readline(); {does}"


@pytest.fixture
def group() -> Iterator[Path]:
    """Yield a control group with little memory."""
    for root, limit in GROUPS:
        made = root / f"dsforge-test-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        try:
            if (made / limit).exists():
                (made / limit).write_text(str(LIMIT_BYTES))
                if (made / "memory.swap.max").exists():
                    (made / "memory.swap.max").write_text("0")
                yield made
                return
        except OSError:
            continue
        finally:
            made.rmdir()
    pytest.skip("no control group with a limit of memory can be made here")


def start(does: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WAITS.format(does=does)], stdin=subprocess.PIPE)


def test_the_killer_is_told_from_any_other_sigkill(group):
    greedy, other = start(f"bytearray({LIMIT_BYTES} * 4)"), start("pass")
    watches = []
    for process in (greedy, other):
        (group / "cgroup.procs").write_text(str(process.pid))
        watches.append(oom.watch(process.pid))
    assert {watch.counter.parent for watch in watches} == {group}
    other.kill()
    assert other.wait() == -signal.SIGKILL
    assert not watches[1].has_killed()
    greedy.communicate(b"\n")
    assert greedy.returncode == -signal.SIGKILL
    assert watches[0].has_killed()


def test_without_a_group_the_machine_counts():
    assert oom.watch(2**22 + 1).counter == Path("/proc/vmstat")
    assert not oom.watch(2**22 + 1).has_killed()
