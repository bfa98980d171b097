"""A batch script of PBS, which chooses the hosts; our own fan-out over ssh reaches them."""

from __future__ import annotations

from dsforge.plan.job_types import Pbs
from dsforge.plan.types import Plan
from dsforge.render.hosts import Hosts
from dsforge.render.launchers.over_ssh import handed_over
from dsforge.render.script import comment, script

_HOUR, _MINUTE = 3600, 60
_LONGEST_NAME = 230
"""PBS_MAXJOBNAME; older ones have 15."""


def files(plan: Plan, _hosts: Hosts | None) -> dict[str, str]:
    """Return the script. There is no hostfile: the hosts are known once the job runs."""
    job = plan.launch.pbs
    assert job is not None, "planned for PBS"
    text = script(
        "pbs",
        plan,
        dsforge='"$dsforge_python" -m dsforge.cli',
        directives=_directives(plan, job),
        **handed_over(plan),
    )
    return {"launch.sh": text}


def _directives(plan: Plan, job: Pbs) -> list[str]:
    """Return qsub's options, which it reads without a shell: every text in them is of plain characters."""
    ranks = plan.layout.gpus_per_node
    chunk = {"ncpus": ranks * job.cpus_per_rank, "mpiprocs": ranks}
    gpus = {"ngpus": ranks} if plan.accelerator == "cuda" else {}
    asked: dict[str, object] = {**chunk, **gpus, **job.resources}
    select = ":".join((str(plan.layout.nodes), *(f"{name}={value}" for name, value in asked.items())))
    wanted = {
        "N": comment(plan.name).replace(" ", "-").replace("?", "-")[:_LONGEST_NAME],
        "q": job.queue,
        "P": job.project,
        "A": job.account,
        "r": "y" if job.rerun else "n",
        "S": "/bin/bash",
    }
    resources = [f"select={select}", f"place={job.place}"]
    if job.time_seconds:
        resources.append(f"walltime={_time(job.time_seconds)}")
    lines = [f"-{option} {value}" for option, value in wanted.items() if value is not None]
    return [*lines, *(f"-l {resource}" for resource in resources)]


def _time(seconds: int) -> str:
    """Return a time limit as PBS writes it: hours:minutes:seconds."""
    hours, rest = divmod(seconds, _HOUR)
    return f"{hours:02}:{rest // _MINUTE:02}:{rest % _MINUTE:02}"
