"""Follows the streams of one attempt: who has reported, who has ended, how far training is."""

from __future__ import annotations

import time
from pathlib import Path

from dsforge.launch.world import report_difference
from dsforge.plan.types import Plan
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import (
    EvalLine,
    Event,
    ExitRecord,
    Heartbeat,
    HostEnd,
    MetricsLine,
    StackSample,
    WorldReport,
    parse_line,
    read_lines,
)

SUPERVISOR = "supervisor"
JOINED = "joined"
"""The event by which a trainer says that its process group stands."""

Item = WorldReport | ExitRecord | MetricsLine | EvalLine | Event


class Follower:
    """What is known of an attempt; `poll` reads what is new."""

    def __init__(self, plan: Plan, attempt: AttemptDir, *, looks_on: bool = False) -> None:
        """Take the attempt; `looks_on`: from elsewhere than its supervisor, whose events are news then."""
        self.reports: dict[int, WorldReport] = {}
        self.exits: dict[int, ExitRecord] = {}
        self.losses: dict[int, float] = {}
        self.validation_losses: dict[int, float] = {}
        self.last_metrics: MetricsLine | None = None
        self.joined = False
        self.gone: dict[int, float] = {}
        """Ranks on other hosts whose wrapper has vanished, as their guards say, and when it was last seen."""
        self.oom_killed: set[int] = set()
        """Those of them around which the kernel has ended a process for want of memory."""
        self.clean_nodes: set[int] = set()
        """Nodes on other hosts where nothing of the attempt is left."""
        self.samples: list[StackSample] = []
        """Answers to the last inquiry."""
        self._inquiries = 0
        self.mismatch: tuple[WorldReport, str] | None = None
        self.last_progress = time.monotonic()
        self._plan = plan
        self._looks_on = looks_on
        self._streams = [attempt.rank_stream(node) for node in range(plan.layout.nodes)]
        # Rank streams first: once a rank's exit is known, what it wrote before is read in the same round.
        self._offsets: dict[Path, int] = dict.fromkeys((*self._streams, attempt.metrics, attempt.events), 0)

    def poll(self) -> list[Item]:
        """Return the new lines of all streams by time; a line that is not what it says is left out."""
        return self._read(list(self._offsets))

    def poll_hosts(self) -> list[Item]:
        """Return the new lines of the ranks' streams alone."""
        return self._read(self._streams)

    def _read(self, paths: list[Path]) -> list[Item]:
        found: list[Item] = []
        for path in paths:
            for offset, line in read_lines(path, self._offsets[path]):
                self._offsets[path] = offset
                item = parse_line(line)
                match item:
                    case Heartbeat(time=seen, rank=rank, gone=True, oom_killed=oom_killed):
                        self.gone.setdefault(rank, seen)
                        self.oom_killed |= {rank} if oom_killed else set()
                    case StackSample(request=request) if request == self._inquiries:
                        self.samples.append(item)
                    case HostEnd(node=node):
                        self.clean_nodes.add(node)
                if isinstance(item, Item) and self._take(item):
                    found.append(item)
        return sorted(found, key=lambda item: item.time)

    def begin_inquiry(self) -> int:
        """Return the number of a new inquiry, whose answers alone are kept from now on."""
        self._inquiries += 1
        self.samples = []
        return self._inquiries

    @property
    def succeeded(self) -> bool:
        """Tell whether every planned rank left an exit record with code 0."""
        return len(self.exits) == self._plan.layout.world_size and not self.failed

    @property
    def failed(self) -> bool:
        """Tell whether any rank left an exit record with another code than 0."""
        return any(record.code != 0 for record in self.exits.values())

    @property
    def silent_ranks(self) -> list[int]:
        """Return the planned ranks that have not reported."""
        return [rank for rank in range(self._plan.layout.world_size) if rank not in self.reports]

    def _take(self, item: Item) -> bool:
        match item:
            case WorldReport():
                difference = report_difference(self._plan, item, self.reports)
                if difference is None:
                    self.reports[item.rank] = item
                elif self.mismatch is None:
                    self.mismatch = (item, difference)
            case ExitRecord():
                self.exits.setdefault(item.rank, item)
                return True
            case MetricsLine():
                self.last_metrics = item
                self.losses[item.step] = item.loss
                self.joined = True
            case EvalLine():
                self.validation_losses[item.step] = item.loss
            case Event(source=source, name=name):
                if source == SUPERVISOR:
                    return self._looks_on
                self.joined = self.joined or name == JOINED
        self.last_progress = time.monotonic()
        return True
