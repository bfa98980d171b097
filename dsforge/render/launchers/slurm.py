"""A batch script of Slurm, which chooses the hosts and starts every rank itself."""

from __future__ import annotations

from dsforge.plan.types import Plan
from dsforge.records import environment
from dsforge.render.hosts import Hosts
from dsforge.render.script import PASSED_ON, comment, script

_MINUTE = 60


def files(plan: Plan, _hosts: Hosts | None) -> dict[str, str]:
    """Return the script. There is no hostfile: the hosts are known once the job runs."""
    assert plan.launch.slurm is not None
    ranks = [*PASSED_ON, "HOME", "LANG", "USER", "MASTER_PORT", "DSFORGE_PYTHON", *plan.launch.env_from]
    return {
        "launch.sh": script(
            "slurm",
            plan,
            dsforge='"$dsforge_python" -m dsforge.cli',
            directives=_directives(plan, [*ranks, environment.RUN]),
            slurm=plan.launch.slurm,
            spares=plan.spares,
            passed_on=sorted({*ranks, *plan.launch.env, "MASTER_ADDR"}),
        )
    }


def _directives(plan: Plan, submitted: list[str]) -> list[str]:
    """Return sbatch's options.

    Slurm reads these lines without a shell: every text in them is of plain characters, by the recipe's own
    types or made so here.
    """
    layout, slurm = plan.layout, plan.launch.slurm
    assert slurm is not None
    wanted: dict[str, object | None] = {
        "job-name": comment(plan.name).replace(" ", "-"),
        "nodes": layout.nodes + plan.spares,
        "no-kill": plan.spares > 0,
        "ntasks-per-node": layout.gpus_per_node,
        "gpus-per-node": layout.gpus_per_node if plan.accelerator == "cuda" else None,
        "cpus-per-task": slurm.cpus_per_task,
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "time": _time(slurm.time_seconds) if slurm.time_seconds else None,
        "signal": f"B:USR1@{slurm.notice_seconds}" if slurm.notice_seconds else None,
        "export": ",".join(submitted),
        "open-mode": "append",
    }
    lines = [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in wanted.items()
        if value is not None and value is not False
    ]
    return [*lines, "--requeue" if slurm.requeue else "--no-requeue", *slurm.extra]


def _time(seconds: int) -> str:
    """Return a time limit as Slurm writes it, rounded up to its minutes: days-hours:minutes:seconds."""
    minutes = -(-seconds // _MINUTE)
    hours, minutes = divmod(minutes, _MINUTE)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:00"
