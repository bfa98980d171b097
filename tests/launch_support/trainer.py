"""A trainer of a few lines: rank 0 writes a metrics line a step; what goes wrong is set by variables.

TINY_STEPS (0: for ever), TINY_FAIL_RANK and TINY_FAIL_STEP (raise TINY_RAISE there), TINY_HANG_STEP (sleep
there), TINY_KILL_STEP (SIGKILL itself there), TINY_ONLY_ATTEMPT (misbehave only in this attempt), TINY_CHILD
(start a child that ignores SIGTERM), TINY_SAY (print this variable).
"""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dsforge.base.canonical import dump_line
from dsforge.base.files import append_line
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import MetricsLine

STEP_SECONDS = 0.1


def setting(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def main() -> None:
    rank = int(os.environ["RANK"])
    attempt = AttemptDir(Path(os.environ["DSFORGE_ATTEMPT_DIR"]))
    steps = setting("TINY_STEPS", 3)
    misbehaves = setting("TINY_ONLY_ATTEMPT", 0) in (0, int(attempt.path.name.removeprefix("attempt-")))
    if said := os.environ.get("TINY_SAY"):
        sys.stdout.write(f"{said}={os.environ[said]}\n")
    if setting("TINY_CHILD", 0):
        ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", ignore])
    if setting("TINY_DEAF", 0):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    step = 0
    while steps == 0 or step < steps:
        step += 1
        if misbehaves and step == setting("TINY_HANG_STEP", -1):
            time.sleep(600)
        if misbehaves and step == setting("TINY_KILL_STEP", -1):
            os.kill(os.getpid(), signal.SIGKILL)
        if misbehaves and (rank, step) == (setting("TINY_FAIL_RANK", -1), setting("TINY_FAIL_STEP", -1)):
            raise getattr(builtins, os.environ.get("TINY_RAISE", "RuntimeError"))(
                f"rank {rank} fails on purpose"
            )
        time.sleep(STEP_SECONDS)
        if rank == 0:
            line = MetricsLine(time.time(), step, 4.0 / step, None, 1e-3, 10.0, STEP_SECONDS, 0)
            append_line(attempt.metrics, dump_line(line.as_dict()))
    sys.stdout.write(f"rank {rank} is done\n")


if __name__ == "__main__":
    main()
