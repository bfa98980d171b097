"""`python -m dsforge.rank.guard [NODE]`: beside an attempt, on each of its hosts; ends all of it there.

Ranks look at the lease themselves. This is for the launchers around them, which do not, and for the time
before there are ranks. On a host that the supervisor cannot look into, a guard of a node also tells of ranks
that vanish, looks where they are when it is asked, and ends what is left when the supervisor asks for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from dsforge.base import processes
from dsforge.base.canonical import dump_line
from dsforge.base.files import append_line
from dsforge.base.lease import LeaseWatch
from dsforge.rank.neighbours import Neighbours
from dsforge.rank.stacks import answer_later
from dsforge.records import environment
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import Heartbeat, HostEnd

LEASE_CHECK_SECONDS = 0.5
PATIENCE_SECONDS = 5.0
"""For ranks to end themselves and to say why: they look once a second."""
_KILL_SECONDS = 60.0
_TICK_SECONDS = 0.1


def main(arguments: list[str]) -> int:
    """Wait for the lease to be free, then end what carries the attempt's mark; 1 if some process stays."""
    attempt = AttemptDir(Path(os.environ[environment.ATTEMPT_DIR]))
    node = int(arguments[0]) if arguments else None
    watch = LeaseWatch(Path(os.environ[environment.LEASE]))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Schedulers send these to all processes of a job: its ranks then need time, and their guard.
        signal.signal(number, signal.SIG_IGN)
    if node is None:
        while watch.is_held():
            time.sleep(LEASE_CHECK_SECONDS)
    else:
        neighbours = Neighbours(attempt.rank_stream(node))
        answered = 0
        while watch.is_held() and _number(attempt.stop_request) != signal.SIGQUIT:
            for rank, seen in neighbours.newly_gone().items():
                killed = neighbours.is_oom_killed(rank)
                _tell(attempt, node, Heartbeat(time=seen, node=node, rank=rank, gone=True, oom_killed=killed))
            if (asked := _number(attempt.stack_request)) > answered:
                answered = asked
                answer_later(attempt, node, neighbours.trainers, asked)
            time.sleep(LEASE_CHECK_SECONDS)
    # Launchers that have started no rank yet are not given the time to do it.
    ranks_began = any(attempt.path.glob("ranks-*.jsonl"))
    left = _end_all(attempt, PATIENCE_SECONDS if ranks_began else 0.0)
    with contextlib.suppress(OSError):
        attempt.remove_secrets()
    if node is not None:
        _tell(attempt, node, HostEnd(time=time.time(), node=node, left=left))
    return int(left > 0)


def _tell(attempt: AttemptDir, node: int, line: Heartbeat | HostEnd) -> None:
    with contextlib.suppress(OSError):
        append_line(attempt.rank_stream(node), dump_line(line.as_dict()))


def _number(path: Path) -> int:
    """Return the number in a file of the supervisor's; 0 while there is none."""
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return 0


def _end_all(attempt: AttemptDir, patience_seconds: float) -> int:
    """End what carries the attempt's mark here, patiently at first; return how many processes stay."""
    mark = (environment.ATTEMPT_DIR, str(attempt.path))
    patient_until = time.monotonic() + patience_seconds
    while time.monotonic() < patient_until and processes.carrying(*mark):
        time.sleep(_TICK_SECONDS)
    deadline = time.monotonic() + _KILL_SECONDS
    while left := processes.carrying(*mark):
        if time.monotonic() > deadline:
            return len(left)
        for process in left:
            processes.send_signal(process, signal.SIGKILL)
        time.sleep(_TICK_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
