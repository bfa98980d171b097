"""`python -m dsforge.rank.agent`: on a host that a fan-out has reached; starts the host's launcher and stays.

What to start comes as one line of JSON on stdin, so that no value of it passes a shell or shows in a list of
processes. Stdin then stays open for as long as the one who sent it lives: at its end everything of the
attempt is ended here.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from dsforge.base import prctl, processes
from dsforge.base.canonical import dump_line, loads
from dsforge.base.exits import ExitCode, code_of_signal
from dsforge.records import environment
from dsforge.records.typed import build

READY = "dsforge: the launcher of this host has started"
_LONGEST_LINE_BYTES = 16 * 2**20
_TICK_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0
_KILL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Job:
    """What an agent starts: a program with all variables that are set over the host's own, in a folder."""

    argv: tuple[str, ...]
    environ: dict[str, str]
    cwd: str

    def to_line(self) -> str:
        """Return the line that `main` reads."""
        return dump_line(asdict(self))


def main() -> int:
    """Run the job to its end, or to the end of stdin; return its code, 128 + N for signal N."""
    try:
        job = build(Job, _typed(loads(sys.stdin.buffer.readline(_LONGEST_LINE_BYTES))))
        process = subprocess.Popen(
            list(job.argv),
            env={**os.environ, **job.environ},
            cwd=job.cwd,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: prctl.signal_on_parent_death(signal.SIGKILL),  # noqa: PLW1509 - no thread runs
        )
    except (OSError, ValueError, TypeError) as error:
        sys.stderr.write(f"dsforge: this host cannot start its ranks: {error}\n")
        return int(ExitCode.ENVIRONMENT)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    while process.poll() is None:
        if _has_ended(_TICK_SECONDS):
            process.kill()
            _end_all(job.environ.get(environment.ATTEMPT_DIR, ""))
            process.wait()
            return int(ExitCode.TERMINATED)
    code = process.returncode
    return code if code >= 0 else code_of_signal(-code)


def _typed(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError("what to start is not told")
    return data


def _has_ended(wait_seconds: float) -> bool:
    """Wait for stdin; tell whether whoever held it is gone."""
    handle = sys.stdin.fileno()
    readable, _, _ = select.select([handle], [], [], wait_seconds)
    return bool(readable) and not os.read(handle, 4096)


def _end_all(attempt: str) -> None:
    """Let ranks say why they end, then kill what is left of the attempt here."""
    patient_until = time.monotonic() + _PATIENCE_SECONDS
    deadline = patient_until + _KILL_SECONDS
    while attempt and (left := processes.carrying(environment.ATTEMPT_DIR, attempt)):
        now = time.monotonic()
        if now > deadline:
            return
        for process in left if now > patient_until else ():
            processes.send_signal(process, signal.SIGKILL)
        time.sleep(_TICK_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
