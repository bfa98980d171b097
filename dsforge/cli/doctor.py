"""`dsforge doctor`: what this machine has, ready to be pasted into an issue."""

from __future__ import annotations

import typer

from dsforge.base.exits import ExitCode
from dsforge.base.units import format_bytes
from dsforge.cli import output
from dsforge.cli.options import JsonOption


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("doctor", rich_help_panel=panel)(doctor)


def doctor(json: JsonOption = False) -> None:
    """Show versions, accelerator, compilers, op cache and launchers. Exit 3 when a launch cannot work."""
    from dsforge.ops.doctor import examine_machine

    found = examine_machine()
    if json:
        output.as_json(found.as_dict())
    else:
        output.line(f"python       {found.python}")
        output.line(f"platform     {found.platform}, {found.cpus} cores, {format_bytes(found.memory_bytes)}")
        devices = ", ".join(found.accelerator["devices"]) or found.accelerator["why"]
        output.line(f"accelerator  {found.accelerator['kind']} ({devices})")
        for title, rows in (
            ("packages", found.packages),
            ("compilers", found.compilers),
            ("launchers", found.launchers),
        ):
            output.line()
            output.table(title, ("name", "found"), [(name, value or "-") for name, value in rows.items()])
        output.line()
        output.line(f"op cache     {found.op_cache['folder']}")
        output.line(f"             built: {', '.join(found.op_cache['built']) or 'nothing yet'}")
        libaio = "found" if found.op_cache["libaio"] else "not found: `apt install libaio-dev`"
        output.line(f"libaio       {libaio} (offload to a disk compiles AsyncIO, `async_io`, against it)")
        for problem in found.problems:
            output.note(f"problem: {problem}")
    raise typer.Exit(int(ExitCode.ENVIRONMENT if found.problems else ExitCode.OK))
