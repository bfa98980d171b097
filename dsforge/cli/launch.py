"""`dsforge launch`: run a recipe on this machine through the real deepspeed launcher."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsforge.base.errors import DsforgeError, Finding, Severity
from dsforge.base.text import counted
from dsforge.cli import output
from dsforge.cli.options import (
    AllowOption,
    ArgumentOption,
    ChangesArgument,
    JsonOption,
    PassingOn,
    ProfileOption,
    RecipeArgument,
    RunsOption,
    SetOption,
    load,
    load_sealed,
    plan_warned,
    runs_root,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsforge.launch.types import HostStart, LaunchDescription, RunOutcome
    from dsforge.ops.start import StartOptions
    from dsforge.records.run_dir import RunDir


_LOCAL = (
    *("launch.launcher=local", "launch.rendezvous=static"),
    *(f"cluster.{key}=null" for key in ("hostfile", "include", "exclude", "interface")),
    *(f"launch.{scheduler}=null" for scheduler in ("slurm", "kubernetes", "pbs")),
)
"""Changes that make a recipe of one node a recipe for this machine; DSF155 refuses several nodes."""


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    app.command("launch", cls=PassingOn, rich_help_panel=panel)(launch)


def start_options(runs: Path | None, allow: Sequence[str] | None = None) -> StartOptions:
    """Return how this process was asked to start runs."""
    from dsforge.ops.start import StartOptions

    words = ("dsforge", *sys.argv[1:])
    return StartOptions(
        runs_root(runs), words, dict(os.environ), frozenset(code.upper() for code in allow or ())
    )


def launch(
    recipe: RecipeArgument,
    changes: ChangesArgument = None,
    set_: SetOption = None,
    argument: ArgumentOption = None,
    profile: ProfileOption = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Start the ranks here, whatever hosts the recipe names; one node only."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", "--dryrun", help="Print what would run, touch nothing."),
    ] = False,
    locked: Annotated[
        bool, typer.Option("--locked", help="Refuse unless everything is as RECIPE's .lock file says.")
    ] = False,
    lock: Annotated[
        Path | None, typer.Option("--lock", metavar="FILE", help="As --locked, with a lock of another name.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Submit the batch job and return; `dsforge runs` shows it.")
    ] = False,
    allow: AllowOption = None,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Plan, render, start and watch a run. Ctrl-C saves and stops; a second one stops at once."""
    from dsforge.cli.progress import Progress
    from dsforge.ops.start import describe, start, submit

    wants_lock = locked or lock is not None
    changes = [*(changes or ()), *(_LOCAL if local else ())]
    loaded = (load_sealed if wants_lock else load)(recipe, changes, set_, profile, argument, json=json)
    if wants_lock:
        from dsforge.ops.lock import default_lock_path, enforce, make_lock, read_lock

        path = lock or default_lock_path(recipe)
        enforce(read_lock(path), make_lock(loaded), path)
    options = start_options(runs, allow)
    if dry_run:
        output.need_stdout()
        plan_warned(loaded, options.allow)
        _print_description(describe(loaded, options), json=json)
        return
    progress = Progress(plan_warned(loaded, options.allow).train.steps, tells_end=False)
    if detach:
        _print_submitted(submit(loaded, options, progress), json=json)
        return
    _, outcome = start(loaded, options, progress)
    if outcome.exit.code != 0:
        _note_failure(outcome)
    with output.expendable():
        if json:
            output.as_json(_as_dict(outcome))
        elif outcome.exit.code == 0:
            _print_success(outcome)
    raise typer.Exit(outcome.exit.code)


def _print_submitted(run_dir: RunDir, *, json: bool) -> None:
    from dsforge.runs.jobs import job_of

    run_id, job = run_dir.path.name, job_of(run_dir)
    assert job is not None, "submitted before"
    if json:
        output.as_json({"run_id": run_id, "run": str(run_dir.path), "job": job.id, "state": "queued"})
        return
    output.line(f"{run_id}: {job}")
    output.note(f"hint: `dsforge runs show {run_id}` shows it, `dsforge runs stop {run_id}` stops it")


def _as_dict(outcome: RunOutcome) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "run_id": outcome.run_id,
        "run": str(outcome.run_dir),
        "attempts": outcome.attempts,
        "exit": asdict(outcome.exit),
        "losses": list(outcome.losses.values()),
        "validation_losses": {str(step): loss for step, loss in outcome.validation_losses.items()},
    }


def _print_success(outcome: RunOutcome) -> None:
    losses = list(outcome.losses.values())
    fell = (
        f"loss {losses[0]:.4f} to {losses[-1]:.4f} over {counted(len(losses), 'step')}"
        if losses
        else "no step was left to do"
    )
    output.line(f"{outcome.run_id}: {fell}")
    for step, loss in list(outcome.validation_losses.items())[-1:]:
        output.line(f"validation loss {loss:.4f} after step {step}")
    output.line(f"records in {outcome.run_dir}")


def _note_failure(outcome: RunOutcome) -> None:
    for text in outcome.tail[-20:]:
        output.note(f"  | {text}")
    first, *more = outcome.exit.message.splitlines()
    output.note(f"error[{outcome.exit.kind}]: {first}")
    if not outcome.tail:
        for text in more:
            output.note(f"  | {text.strip()}" if text.startswith("  ") else f"  hint: {text}")
    if outcome.exit.hint is not None:
        output.note(f"  hint: {outcome.exit.hint}")
    if outcome.exit.not_restarted is not None:
        output.note(f"  not restarted: {outcome.exit.not_restarted}")
    output.note(
        f"  hint: `dsforge runs logs {outcome.run_id}` shows every rank; records in {outcome.run_dir}"
    )


def _as_warning(refusal: DsforgeError) -> Finding:
    message = f"here it would not start: {refusal.message}"
    return Finding(refusal.code, Severity.WARNING, message, None, refusal.place, refusal.hint)


def _print_description(what: LaunchDescription, *, json: bool) -> None:
    from dsforge.base import shell

    command, refusals = what.command, [_as_warning(refusal) for refusal in what.refusals]
    output.findings(refusals)
    if json:
        output.as_json(
            {
                "run": str(what.run_dir),
                "command": list(command.argv),
                "environment": command.environ,
                "starts": list(what.started),
                "hosts": [_start_as_dict(one) for one in what.starts],
                "secrets": list(what.secret_names),
                "files": what.bundle_files,
                "written": list(what.written_files),
                "refusals": [refusal.as_dict() for refusal in refusals],
            }
        )
        return
    output.line(f"# run directory {what.run_dir}")
    for name in what.written_files:
        output.line(f"#   {name}")
    for name, text in what.bundle_files.items():
        output.line(f"\n# file bundle/{name}")
        output.line(text.rstrip("\n"))
    output.line("\n# environment")
    _print_variables(command.environ, what.secret_names)
    output.line("\n# command, on this host")
    output.line(shell.join(command.argv))
    if what.untold is not None:
        output.line(f"\n# launch.sh does not tell here what it starts: {what.untold}")
        return
    output.line("\n# launch.sh becomes")
    output.line(shell.join(what.started))
    _print_starts(what)


def _start_as_dict(start: HostStart) -> dict[str, object]:
    return {
        "host": start.host,
        "node": start.node,
        "processes": start.processes,
        "command": list(start.argv),
        "environment": start.environ,
        "cwd": start.cwd,
        "through": list(start.through),
    }


def _print_starts(what: LaunchDescription) -> None:
    """Print each host's command, and the variables once where every host has the same."""
    from dsforge.base import shell

    shared = dict(what.starts[0].environ.items() & what.starts[-1].environ.items())
    for one in what.starts:
        shared = {name: text for name, text in shared.items() if one.environ.get(name) == text}
    output.line(f"\n# on every host, in {what.starts[0].cwd}")
    _print_variables(shared, what.secret_names)
    for one in what.starts:
        host = one.host or "chosen by the scheduler"
        times = f", {one.processes} of it" if one.processes > 1 else ""
        output.line(f"\n# node {one.node}, {host}{times}")
        if one.through:
            output.line(f"# by {shell.join(one.through)}")
        _print_variables({name: text for name, text in one.environ.items() if name not in shared}, ())
        output.line(shell.join(one.argv))


def _print_variables(environ: dict[str, str], secrets: tuple[str, ...]) -> None:
    from dsforge.base import shell

    for name, value in sorted(environ.items()):
        output.line(f"export {name}={shell.quote(value)}")
    for name in secrets:
        output.line(f"# {name}: from your environment, not shown")
