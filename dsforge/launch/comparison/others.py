"""DSF265, DSF272: clocks that differ, and what dead runs have left."""

from __future__ import annotations

from collections.abc import Iterator

from dsforge.base.errors import Finding
from dsforge.launch.comparison.known import Known, warning

_CLOCK_SECONDS = 1.0
"""Causes are found by who failed first, and what follows a failure follows within a second or two."""
_MOST_SHOWN = 5


def check(known: Known) -> Iterator[Finding]:
    """Yield hosts whose clock is off, and processes of runs that nobody supervises any more."""
    for seen in known.seen:
        off = abs(seen.offset_seconds) - seen.round_trip_seconds / 2
        if off > _CLOCK_SECONDS:
            way = "ahead of" if seen.offset_seconds > 0 else "behind"
            yield warning(
                "DSF265",
                seen.host,
                f"its clock is {abs(seen.offset_seconds):.1f} s {way} this host's: "
                "what happened first on two hosts could not be told",
                "`chronyc makestep` there, and keep a time service running",
            )
    for host, facts in known.answered():
        for left in facts.leftovers:
            if left.is_dead or left.lease in known.dead_leases:
                pids = " ".join(map(str, left.pids[:_MOST_SHOWN]))
                yield warning(
                    "DSF272",
                    host,
                    f"{len(left.pids)} processes of a dead run are left: {left.attempt}",
                    f"`kill -9 {pids}` there",
                )
