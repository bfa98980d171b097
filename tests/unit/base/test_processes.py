from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

from dsforge.base import processes


def start(**environ: str) -> subprocess.Popen[bytes]:
    program = "import sys; print(); sys.stdout.flush(); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environ},
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_an_identity_is_an_id_with_its_start():
    process = start()
    identity = processes.identify(process.pid)
    assert identity is not None
    assert processes.is_alive(identity)
    assert processes.parent_of(process.pid) == os.getpid()
    assert process.pid in processes.children_of(os.getpid())
    reused = replace(identity, start=identity.start + 1)
    assert not processes.is_alive(reused)
    assert not processes.send_signal(reused, signal.SIGKILL)
    assert process.poll() is None
    assert processes.send_signal(identity, signal.SIGKILL)
    while processes.is_alive(identity):  # a zombie is not alive, although its id still exists
        time.sleep(0.01)
    assert processes.identify(process.pid) == identity
    process.communicate()
    assert processes.identify(process.pid) is None
    assert not processes.send_signal(identity, signal.SIGKILL)


def test_a_run_is_found_by_its_mark_and_not_by_a_longer_one(tmp_path):
    mark = str(tmp_path)
    process = start(TINY_MARK=mark)
    other = start(TINY_MARK=mark + "x", NOT_TINY_MARK=mark)
    try:
        assert [found.pid for found in processes.carrying("TINY_MARK", mark)] == [process.pid]
    finally:
        for one in (process, other):
            one.communicate()
    assert processes.carrying("TINY_MARK", mark) == []


def test_open_files_are_seen(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    assert not processes.has_open(path)
    with path.open():
        assert processes.has_open(path)


def test_signal_names():
    assert processes.signal_name(9) == "SIGKILL"
    assert processes.signal_name(200) == "signal 200"


def test_reaping_leaves_the_child_whose_status_is_asked_for():
    def ended(code: int) -> subprocess.Popen:
        child = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"], start_new_session=True)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        return child

    asked, orphan = ended(7), ended(8)
    processes.reap({asked.pid, orphan.pid}, but=asked.pid)
    assert asked.poll() == 7
    assert orphan.pid not in processes.children_of(os.getpid())
    orphan.returncode = 8  # collected above: nothing is left for Popen to wait for
