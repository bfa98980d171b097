"""What this machine holds, and how long ranks take to start on it."""

from __future__ import annotations

import os

from dsforge.ops.machine_room import start_up_seconds


def test_ranks_share_the_cores_as_they_start():
    (core, *_) = here = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        alone = start_up_seconds(1)
        assert start_up_seconds(8) == 8 * alone
    finally:
        os.sched_setaffinity(0, here)
    assert start_up_seconds(8 * len(here)) == 8 * alone
    assert start_up_seconds(1) == alone  # a rank loads its libraries on one core
