"""A run whose disk is full says so itself, on a small disk of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsforge.records.run_state import read_state

ROOT = Path(__file__).parents[3]
_RUN = """
import os, shutil, sys, time
from pathlib import Path
from dsforge.base.errors import DsforgeError
from dsforge.launch.run import launch_run
from dsforge.launch.types import LaunchRequest
from tests.launch_support.bundles import make_bundle
from tests.launch_support.plans import make_plan

disk, kept = Path(sys.argv[1]), Path(sys.argv[2])
plan = make_plan()
request = LaunchRequest(plan, make_bundle(plan), disk / "runs", kept, "a", "", (), dict(os.environ))

def fill(event):
    # The first word of the run: what comes now finds no room, not for a folder's entry either.
    if event.name == "created":
        with open(disk / "filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

try:
    launch_run(request, fill)
except DsforgeError as error:
    print(error.code)
(run,) = (disk / "runs").iterdir()
shutil.copy(run / "state.json", kept / "state.json")
print((run / "reserve").exists())
"""


def test_a_full_disk_is_told_in_the_runs_last_state(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=1m none {disk} && exec "$@"'
    apart = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh")
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a disk in a namespace of its own")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [*apart, sys.executable, "-c", _RUN, str(disk), str(tmp_path)],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.split() == ["DSF209", "False"], done.stderr
    state = read_state(tmp_path / "state.json")
    assert state is not None
    assert state.exit is not None
    assert (state.state, state.exit.code) == ("failed", 3)
    assert "No space left on device" in state.exit.message
