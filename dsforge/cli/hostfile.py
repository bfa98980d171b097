"""`dsforge hostfile`: made from a job's list of hosts, or checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsforge.base.exits import ExitCode
from dsforge.cli import output
from dsforge.cli.options import JsonOption
from dsforge.cli.panels import PanelGroup

if TYPE_CHECKING:
    from dsforge.render.hosts import Hosts

app = typer.Typer(help="Hostfiles: from a Slurm or PBS job, check.", cls=PanelGroup)

SlotsOption = Annotated[
    int | None, typer.Option("--slots", min=1, max=1_048_576, help="GPUs of every host. Default: the job's.")
]


@app.command("from-slurm")
def from_slurm(
    node_list: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODELIST]", help="Such as 'node[01-04]'. Default: the job's.", show_default=False
        ),
    ] = None,
    slots: SlotsOption = None,
    json: JsonOption = False,
) -> None:
    """Print the hostfile of a Slurm job, of SLURM_JOB_NODELIST with SLURM_GPUS_ON_NODE slots."""
    from dsforge.render.hosts.jobs import from_slurm as hosts_of_job

    _print(*hosts_of_job(os.environ, node_list, slots), json=json)


@app.command("from-pbs")
def from_pbs(slots: SlotsOption = None, json: JsonOption = False) -> None:
    """Print the hostfile of a PBS job, of PBS_NODEFILE."""
    from dsforge.render.hosts.jobs import from_pbs as hosts_of_job

    _print(*hosts_of_job(os.environ, slots), json=json)


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="The hostfile.", show_default=False)], json: JsonOption = False
) -> None:
    """Check a hostfile: what dsforge takes it for, and what deepspeed would. Exit 1 on faults."""
    from dsforge.ops.hostfile import check_hostfile

    checked = check_hostfile(file)
    ok = checked.hosts is not None
    if json:
        output.as_json(
            {
                "ok": ok,
                "file": str(file),
                "hosts": None if checked.hosts is None else _listed(checked.hosts),
                "findings": [one.as_dict() for one in checked.findings],
                "engine": {
                    "name": checked.engine,
                    "hosts": None if checked.read is None else _listed(checked.read),
                    "same": checked.alike,
                },
            }
        )
    else:
        output.findings(checked.findings)
        output.line(f"{file}: {_told(checked.hosts)}")
        if checked.alike:
            output.line(f"{checked.engine} reads the same")
        else:
            output.line(f"{checked.engine}, given this very file: {_told(checked.read)}")
            for host, slots in (checked.read or {}).items():
                output.line(f"  {host} slots={slots}")
    raise typer.Exit(int(ExitCode.OK if ok else ExitCode.FINDINGS))


def _listed(hosts: Hosts) -> list[dict[str, object]]:
    return [{"host": host, "slots": slots} for host, slots in hosts.items()]


def _told(hosts: Hosts | None) -> str:
    if hosts is None:
        return "refused"
    return f"{len(hosts)} host{'' if len(hosts) == 1 else 's'}, {sum(hosts.values())} slots"


def _print(hosts: Hosts, slots_from: str, *, json: bool) -> None:
    from dsforge.render.hosts import render_hosts

    if json:
        output.as_json({"hosts": _listed(hosts), "slots_from": slots_from})
        return
    output.data(render_hosts(hosts))
    output.note(f"{_told(hosts)}; slots from {slots_from}")
