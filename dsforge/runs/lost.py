"""Why nobody says how a run ended: its supervisor died, and only what the ranks left tells of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dsforge.base import processes
from dsforge.base.batch import Job
from dsforge.records.run_dir import RunDir
from dsforge.records.run_state import RunState
from dsforge.runs.reading import read_exits, read_metrics, read_reports


@dataclass(frozen=True, slots=True)
class Loss:
    """How a run was lost, in words. `time`: the first rank that ended for it, or the last sign of life."""

    message: str
    time: float | None


def find_loss(run_dir: RunDir, state: RunState, job: Job | None = None) -> Loss:
    """Return how a run was lost whose supervisor is dead, and its job over if it had one.

    Its streams are those of its last attempt.
    """
    attempt = run_dir.attempt(state.attempt)
    exits, reports = read_exits(attempt), read_reports(attempt)
    who = f"the supervisor (dsforge launch, pid {state.supervisor.pid})"
    same_boot = state.boot_id == processes.boot_id()
    why = "died" if same_boot else "died with the machine, which has restarted since"
    if job is not None:
        who, why = "the batch job in which its supervisor was to live", f"is over ({job.state})"
    ended = Counter((record.code, record.cause) for record in exits)
    told = [f"{count} with code {code} ({cause})" for (code, cause), count in sorted(ended.items())]
    told += [f"{missing} without an exit record"] if (missing := len(reports) - len(exits)) > 0 else []
    ranks = f"; of its ranks ended {', '.join(told)}" if told else "; no rank had reported"
    left = [record.time for record in exits if record.cause == "lease_lost"]
    seen = [record.time for record in exits] + [report.time for report in reports]
    seen += [line.time for line in read_metrics(attempt)[-1:]]
    return Loss(f"{who} {why}{ranks}", min(left, default=max(seen, default=None)))
