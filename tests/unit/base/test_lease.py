from __future__ import annotations

import subprocess
import sys

from dsforge.base import lease


def test_a_lease_is_held_for_as_long_as_its_supervisor(tmp_path):
    path = tmp_path / "lease"
    assert not lease.is_held(path)
    with lease.hold(path):
        assert lease.is_held(path)
        assert lease.is_held(path), "looking must not take the lock"
    assert not lease.is_held(path)


def test_the_lock_does_not_pass_to_a_child(tmp_path):
    path = tmp_path / "lease"
    with lease.hold(path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert not lease.is_held(path)
    finally:
        child.communicate(b"\n")
