"""The kernel's out-of-memory killer, for real: in a small control group of the test's own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsforge.base import oom
from tests.support.memory import little_memory

LIMIT_BYTES = 64 * 2**20
WAITS = "import sys; sys.stdin.readline(); {does}"


@pytest.fixture
def group() -> Iterator[Path]:
    yield from little_memory(LIMIT_BYTES)


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
