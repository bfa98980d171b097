from __future__ import annotations

import subprocess
import sys

import pytest

from dsforge.base import lease, processes
from dsforge.base.lease import LeaseWatch


def test_a_lease_is_held_for_as_long_as_its_supervisor(tmp_path):
    path = tmp_path / "lease"
    watch = LeaseWatch(path)
    assert not lease.is_held(path)
    with lease.hold(path):
        assert lease.is_held(path)
        assert lease.is_held(path), "looking must not take the lock"
        assert watch.is_held()
        assert not watch.is_far
    assert not lease.is_held(path)
    assert not watch.is_held()


def test_the_lock_does_not_pass_to_a_child(tmp_path):
    path = tmp_path / "lease"
    with lease.hold(path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert not lease.is_held(path)
    finally:
        child.communicate(b"\n")


@pytest.fixture
def elsewhere(monkeypatch):
    """Have this process look from another host than the one that holds."""
    monkeypatch.setattr(lease, "machine", lambda: "another boot/pid:[1]")


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(lease.time, "monotonic", lambda: now[0])
    return now


def held_here(path, count: int) -> None:
    path.write_bytes(b"%012d %s\n" % (count, processes.machine().encode()))


def test_from_another_host_a_lease_is_held_while_its_count_moves(tmp_path, elsewhere, clock):
    path = tmp_path / "lease"
    held_here(path, 1)
    watch = LeaseWatch(path)
    assert watch.is_far
    assert watch.is_held()
    clock[0] += lease.EXPIRY_SECONDS - 0.1
    assert watch.is_held()
    held_here(path, 2)
    clock[0] += lease.EXPIRY_SECONDS - 0.1
    assert watch.is_held()
    clock[0] += lease.EXPIRY_SECONDS - 0.1
    assert watch.is_held()
    clock[0] += 0.2
    assert not watch.is_held()


def test_a_holder_that_ends_says_so_to_other_hosts(tmp_path, monkeypatch):
    path = tmp_path / "lease"
    with lease.hold(path):
        first = path.read_bytes()
        assert first.split()[1].decode() == processes.machine()
    assert len(path.read_bytes()) == len(first)
    monkeypatch.setattr(lease, "machine", lambda: "another boot/pid:[1]")
    assert not LeaseWatch(path).is_held()


def test_the_holder_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.01)
    path = tmp_path / "lease"
    with lease.hold(path):
        seen = {path.read_bytes()}
        while len(seen) < 3:
            seen.add(path.read_bytes())
