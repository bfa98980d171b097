"""A bundle as the renderer writes it, around a tiny trainer instead of the real one."""

from __future__ import annotations

from pathlib import Path

from dsforge.base.canonical import dumps
from dsforge.plan.types import Plan
from dsforge.render.bundle import Bundle

TRAINER = "tests.launch_support.trainer"
REPOSITORY = Path(__file__).resolve().parents[2]

_SCRIPT = """#!/usr/bin/env bash
set -euo pipefail
here=$(cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")" && pwd)
export DSFORGE_PLAN=$here/plan.json DSFORGE_DS_CONFIG=$here/ds_config.json DS_ENV_FILE=$here/environment
export PYTHONPATH={repository}
exec "${{DSFORGE_DEEPSPEED:-deepspeed}}" --hostfile "$here/hostfile" --no_ssh_check --master_addr 127.0.0.1 \\
  --master_port "${{MASTER_PORT:-29500}}" {options} --no_local_rank --module dsforge.rank.main {trainer}
"""


def make_bundle(plan: Plan, *, slots: int | None = None, options: str = "", trainer: str = TRAINER) -> Bundle:
    return Bundle(
        {
            "plan.json": dumps(plan.to_json_value()),
            "ds_config.json": "{}\n",
            "hostfile": f"localhost slots={slots or plan.layout.gpus_per_node}\n",
            "environment": "",
            "launch.sh": _SCRIPT.format(repository=REPOSITORY, options=options, trainer=trainer),
        }
    )
