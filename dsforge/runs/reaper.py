"""`python -m dsforge.runs.reaper`: ends what is left of a run on this host, by the run's own mark.

What to end comes as a line of JSON on stdin, as questions to a host do (dsforge.records.probe).
"""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from dsforge.base import processes
from dsforge.base.canonical import dump_line, loads
from dsforge.base.exits import ExitCode
from dsforge.base.processes import ProcessId
from dsforge.records import environment
from dsforge.records.probe import MARK, End, Ended
from dsforge.records.run_dir import RunDir
from dsforge.records.typed import build
from dsforge.runs.reading import read_reports

RANK_SECONDS = 6.0
"""For ranks that are told to end to do it."""
KILL_SECONDS = 10.0
_TICK_SECONDS = 0.1


def question(run_dir: RunDir) -> End:
    """Return what is asked of a host on which something may be left of a run."""
    reports = [report for number in run_dir.attempts() for report in read_reports(run_dir.attempt(number))]
    wrappers = {ProcessId(report.pid, report.pid_start) for report in reports}
    ordered = sorted(wrappers, key=lambda one: (one.pid, one.start))
    return End(run_dir.path.name, str(run_dir.path.resolve()), tuple(ordered))


def end_here(asked: End) -> Ended:
    """Ask the recorded wrappers to end, then kill what is of the run, until nothing is left.

    What does not carry the run's mark is never signalled, whatever is recorded.
    """
    found = _processes_of(asked)
    told = [one for one in found if one in asked.wrappers and processes.send_signal(one, signal.SIGTERM)]
    patient_until = time.monotonic() + RANK_SECONDS
    while any(map(processes.is_alive, told)) and time.monotonic() < patient_until:
        time.sleep(_TICK_SECONDS)
    deadline = time.monotonic() + KILL_SECONDS
    while (left := _processes_of(asked)) and time.monotonic() < deadline:
        for one in left:
            processes.send_signal(one, signal.SIGKILL)
        time.sleep(_TICK_SECONDS)
    return Ended(len(found), len(left))


def _processes_of(asked: End) -> list[ProcessId]:
    """Return what carries the run's mark and works in this folder, not in one that this is a copy of."""
    marked = processes.carrying(environment.RUN_ID, asked.run_id)
    folders = [(one, processes.variable_of(one, environment.ATTEMPT_DIR)) for one in marked]
    return [one for one, folder in folders if folder and str(Path(folder).resolve().parent) == asked.folder]


def main() -> int:
    """Answer one question; return 3 where it cannot be read."""
    try:
        asked = build(End, loads(sys.stdin.buffer.readline())["what"])
    except (ValueError, TypeError, KeyError) as error:
        sys.stderr.write(f"dsforge: a question that is not understood: {error}\n")
        return int(ExitCode.ENVIRONMENT)
    sys.stdout.write(MARK + dump_line(asdict(end_here(asked))))
    sys.stdout.flush()
    return int(ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
