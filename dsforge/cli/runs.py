"""`dsforge runs`: what was started, what it did, how to stop it."""

from __future__ import annotations

import typer

app = typer.Typer(help="Runs: list, show, logs, stop.", no_args_is_help=True)


@app.command("list")
def list_runs() -> None:
    """List."""
