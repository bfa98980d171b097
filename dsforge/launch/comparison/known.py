"""What hosts have answered, beside what the plan and the launching host say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dsforge.base.errors import Finding, Place, Severity
from dsforge.launch.survey import Seen
from dsforge.plan.types import Plan
from dsforge.records.gpus import ChosenGpus
from dsforge.records.probe import HostFacts, Question


@dataclass(frozen=True, slots=True)
class Known:
    """All that the comparisons look at.

    `here`: the launching host's own answer. `tokens`: text by folder that this host has put there. `room`:
    bytes that a run needs by folder. `port`: where the user wants the ranks to meet, None for any.
    `dead_leases`: those that nobody holds, as far as this host
    can tell. `python`: the interpreter that every host runs. `seconds`: how long an answer may take.
    `chosen`: which GPUs of each host the ranks take, None for the first.
    """

    plan: Plan
    question: Question
    here: HostFacts
    seen: tuple[Seen, ...]
    tokens: Mapping[str, str]
    room: Mapping[str, int]
    port: int | None
    dead_leases: frozenset[str]
    python: str
    seconds: float
    chosen: ChosenGpus | None = None

    def answered(self) -> Iterator[tuple[str, HostFacts]]:
        """Yield every host that answered, with what it said of itself."""
        for seen in self.seen:
            if seen.facts is not None:
                yield seen.host, seen.facts


def fault(code: str, host: str, message: str, hint: str, severity: Severity = Severity.ERROR) -> Finding:
    """Return a finding about a host: what, and the one command or edit."""
    return Finding(code, severity, message, None, Place(host=host), hint)


def warning(code: str, host: str, message: str, hint: str) -> Finding:
    """Return a finding about a host that does not keep the run from starting."""
    return fault(code, host, message, hint, Severity.WARNING)
