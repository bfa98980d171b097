"""`python -m tests.launch_support.as_job RECIPE`: as `dsforge launch --json`, around the tiny trainer."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from dsforge.base.errors import DsforgeError
from dsforge.launch.onlooker import follow_run
from dsforge.launch.run import launch_run
from dsforge.launch.submit import is_to_submit, submit_run
from dsforge.launch.types import LaunchRequest, ProgressEvent
from dsforge.ops.bundles import plan_and_bundle
from dsforge.recipe.load import load_recipe
from dsforge.render.bundle import Bundle
from tests.launch_support.bundles import TRAINER


def main() -> int:
    recipe = Path(sys.argv[1])
    plan, rendered = plan_and_bundle(load_recipe(recipe))
    script = rendered.files["launch.sh"].replace("dsforge.train.main", TRAINER)
    request = LaunchRequest(
        plan=plan,
        bundle=Bundle({**rendered.files, "launch.sh": script}),
        runs_root=recipe.parent / "runs",
        recipe_root=recipe.parent,
        recipe_path=str(recipe),
        recipe_text=recipe.read_text(),
        command=("dsforge", "launch", str(recipe)),
        environ=dict(os.environ),
        corpus="corpus",
    )
    try:
        if is_to_submit(request):
            outcome = follow_run(submit_run(request, say), plan, say)
        else:
            outcome = launch_run(request, say, goes_on=True)
    except DsforgeError as error:
        sys.stdout.write(json.dumps({"code": error.code, "message": error.message}))
        return int(error.exit_code)
    told = {"run_id": outcome.run_id, "attempts": outcome.attempts, "exit": asdict(outcome.exit)}
    sys.stdout.write(json.dumps({**told, "losses": list(outcome.losses.values())}))
    return outcome.exit.code


def say(event: ProgressEvent) -> None:
    sys.stderr.write(f"{event.name}: {event.message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
