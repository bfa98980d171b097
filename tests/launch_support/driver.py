"""`python -m tests.launch_support.driver FOLDER`: supervises one run as the CLI does, in a process to signal.

FOLDER holds request.json (make_plan's arguments, bundle options); outcome.json is written at the end.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

from dsforge.base.canonical import dump_line
from dsforge.base.errors import DsforgeError
from dsforge.base.files import append_line
from dsforge.launch.run import launch_run
from dsforge.launch.types import LaunchRequest, ProgressEvent
from tests.launch_support.bundles import make_bundle
from tests.launch_support.plans import make_plan


def main(folder: Path) -> int:
    wanted = json.loads((folder / "request.json").read_text())
    plan = make_plan(**wanted["plan"])
    request = LaunchRequest(
        plan=plan,
        bundle=make_bundle(plan, **wanted["bundle"]),
        runs_root=folder / "runs",
        recipe_root=folder,
        recipe_path="tiny.yaml",
        recipe_text="version: 1\n",
        command=("dsforge", "launch", "tiny.yaml"),
        environ=dict(os.environ),
    )

    def on_event(event: ProgressEvent) -> None:
        if os.environ.get("TINY_BROKEN_LISTENER"):
            raise OSError(errno.EIO, "the terminal is gone")
        append_line(folder / "progress.jsonl", dump_line([event.name, event.message]))

    try:
        outcome = launch_run(request, on_event)
    except DsforgeError as error:
        (folder / "error.json").write_text(dump_line([error.code, error.message]))
        return error.exit_code
    summary = {
        "kind": outcome.exit.kind,
        "code": outcome.exit.code,
        "rank": outcome.exit.rank,
        "signal": outcome.exit.signal,
        "message": outcome.exit.message,
        "attempts": outcome.attempts,
        "losses": outcome.losses,
        "run_dir": str(outcome.run_dir),
    }
    (folder / "outcome.json").write_text(json.dumps(summary))
    return outcome.exit.code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
