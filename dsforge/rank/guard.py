"""`python -m dsforge.rank.guard`: beside an attempt; ends everything of it once its supervisor is dead.

Ranks look at the lease themselves. This is for the launchers around them, which do not, and for the time
before there are ranks.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from dsforge.base import lease, processes
from dsforge.records import environment

LEASE_CHECK_SECONDS = 0.5
PATIENCE_SECONDS = 5.0
"""For ranks to end themselves and to say why: they look once a second."""
_KILL_SECONDS = 60.0
_TICK_SECONDS = 0.1


def main() -> int:
    """Wait for the lease to be free, then end what carries the attempt's mark; 1 if some process stays."""
    attempt = os.environ[environment.ATTEMPT_DIR]
    mark = (environment.ATTEMPT_DIR, attempt)
    path = Path(os.environ[environment.LEASE])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Schedulers send these to all processes of a job: its ranks then need time, and their guard.
        signal.signal(number, signal.SIG_IGN)
    while lease.is_held(path):
        time.sleep(LEASE_CHECK_SECONDS)
    # Launchers that have started no rank yet are not given the time to do it.
    ranks_began = any(Path(attempt).glob("ranks-*.jsonl"))
    patient_until = time.monotonic() + (PATIENCE_SECONDS if ranks_began else 0.0)
    while time.monotonic() < patient_until and processes.carrying(*mark):
        time.sleep(_TICK_SECONDS)
    deadline = time.monotonic() + _KILL_SECONDS
    while left := processes.carrying(*mark):
        if time.monotonic() > deadline:
            return 1
        for process in left:
            processes.send_signal(process, signal.SIGKILL)
        time.sleep(_TICK_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
