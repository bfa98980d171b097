"""`python -m dsforge.rank.probe`: on a host that is looked at before a run; answers until its stdin ends.

One question a line on stdin, one answer a line on stdout, both JSON (dsforge.records.probe).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import asdict
from typing import Any

from dsforge.base.canonical import dump_line, loads
from dsforge.base.exits import ExitCode
from dsforge.rank.facts import host_facts
from dsforge.rank.meeting import listen, reach
from dsforge.rank.ops import answer_build, answer_locks
from dsforge.records.probe import (
    ASKS,
    MARK,
    Build,
    Built,
    Clock,
    Listen,
    Listening,
    Locked,
    Locks,
    Question,
    Reach,
    Reached,
    Time,
)
from dsforge.records.probe import HostFacts as Facts
from dsforge.records.typed import build

_LONGEST_LINE_BYTES = 16 * 2**20
_LONGEST_SECONDS = 900.0
"""Nobody asks for so long: whoever did is gone, and the connection does not tell it."""


def answer(asked: Any) -> Facts | Listening | Reached | Time | Locked | Built:
    """Return the answer to a question; ValueError for what is none."""
    match asked:
        case Question():
            return host_facts(asked)
        case Listen():
            return listen(asked)
        case Reach():
            return Reached(reach(asked.targets, asked.seconds))
        case Clock():
            return Time(time.time())
        case Locks():
            return answer_locks(asked)
        case Build():
            return answer_build(asked)
    raise ValueError("not a question")


def main() -> int:
    """Answer until nobody asks any more; return 3 where a question cannot be read."""
    over = threading.Timer(_LONGEST_SECONDS, os._exit, (int(ExitCode.ENVIRONMENT),))
    over.daemon = True
    over.start()
    while line := sys.stdin.buffer.readline(_LONGEST_LINE_BYTES):
        try:
            data = loads(line)
            asked = build(ASKS[data["ask"]], data["what"])  # type: ignore[var-annotated]  # one of several
            said = answer(asked)
        except (ValueError, TypeError, KeyError) as error:
            sys.stderr.write(f"dsforge: a question that is not understood: {error}\n")
            return int(ExitCode.ENVIRONMENT)
        sys.stdout.write(MARK + dump_line(asdict(said)))
        sys.stdout.flush()
    return int(ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
