"""A sum over all ranks, started and supervised as the run itself would be, with nothing else in it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dsforge.base.errors import Finding, Place, Severity
from dsforge.launch.create import disk_error
from dsforge.launch.run import launch_run
from dsforge.launch.types import LaunchRequest, ProgressEvent
from dsforge.plan.types import Plan
from dsforge.render.bundle import Bundle

_EVENT = "all_reduce"
"""As dsforge.train.all_reduce writes it, which is not imported: it loads torch."""


@dataclass(frozen=True, slots=True)
class AllReduce:
    """A tensor's size, the ranks that it was summed over, and the time of the fastest of several sums."""

    bytes: int
    ranks: int
    seconds: float

    @property
    def bytes_per_second(self) -> float:
        """What a rank's link carries: 2 (N - 1) / N of the tensor (nccl-tests, doc/PERFORMANCE.md)."""
        return 2 * (self.ranks - 1) / self.ranks * self.bytes / self.seconds


def all_reduce(
    request: LaunchRequest, bundle_for: Callable[[Plan], Bundle], seconds: float
) -> AllReduce | Finding:
    """Run it in a folder that is removed, and return what it measured, or why it failed.

    `bundle_for` renders another plan of the request's recipe. Ranks that do not meet within `seconds` have
    failed. DsforgeError where this host cannot start it.
    """
    plan = _plan(request.plan, seconds)
    measured: list[AllReduce] = []

    def take(event: ProgressEvent) -> None:
        if event.event is not None and event.event.name == _EVENT:
            measured.append(AllReduce(**event.event.data))

    runs = request.runs_root.absolute()
    try:
        runs.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".dsforge-preflight-", dir=runs))
    except OSError as error:
        raise disk_error(runs, error) from error
    try:
        outcome = launch_run(
            replace(request, plan=plan, bundle=bundle_for(plan), runs_root=folder),
            take,
            hosts_known=True,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds other runs
            runs.rmdir()
    if outcome.exit.code == 0 and measured:
        return measured[0]
    why = outcome.exit.message.splitlines()[0]
    last = f": {outcome.tail[-1]}" if outcome.tail else ""
    hint = "NCCL_DEBUG=INFO or TORCH_DISTRIBUTED_DEBUG=DETAIL in launch.env tells more"
    place = Place(host=outcome.exit.host, rank=outcome.exit.rank)
    return Finding(
        "DSF275", Severity.ERROR, f"the ranks could not sum over all: {why}{last}", None, place, hint
    )


def _plan(plan: Plan, seconds: float) -> Plan:
    """Return a plan of the same ranks that trains nothing, saves nothing and is not tried again."""
    launch = plan.launch.model_copy(
        update={"restarts": 0, "watchdog_seconds": seconds, "rendezvous_timeout_seconds": seconds}
    )
    checkpoint = plan.checkpoint.model_copy(update={"dir": None, "every_steps": 0, "resume": "never"})
    changed = {"trainer": "all_reduce", "external": None, "sinks": (), "launch": launch}
    return plan.model_copy(update={**changed, "checkpoint": checkpoint})
