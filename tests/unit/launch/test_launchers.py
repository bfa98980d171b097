"""The line by which each launcher tells of a host that it lost, as the real programs print it."""

from __future__ import annotations

import pytest

from dsforge.launch.launchers import LAUNCHERS

OPEN_MPI = """\
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[6513,0],0] on node login1
  Remote daemon: [[6513,0],2] on node 10.77.172.3

This is usually due to either a failure of the TCP network
"""
PDSH = """\
pdsh@login1: 10.77.172.2: ssh exited with exit code 1
pdsh@login1: 10.77.172.3: ssh exited with exit code 255
"""
MPICH = """\
Warning: Permanently added '10.77.172.2' (ED25519) to the list of known hosts.\r
Timeout, server 10.77.172.3 not responding.\r
"""
FAN_OUT = """\
10.77.172.3: dsforge: lost the connection to 10.77.172.2
dsforge: lost the connection to 10.77.172.3
"""


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("openmpi", OPEN_MPI),
        ("mpich", MPICH),
        ("pdsh", PDSH),
        ("ssh", FAN_OUT),
        ("torchrun", FAN_OUT),
    ],
)
def test_the_lost_host_is_read_from_what_the_launcher_says(launcher: str, said: str):
    pattern = LAUNCHERS[launcher].lost
    assert pattern is not None
    assert [match["host"] for line in said.splitlines() if (match := pattern.search(line))] == ["10.77.172.3"]
