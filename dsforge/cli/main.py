"""The command line: `run` is the one place that turns errors into exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.cli import (
    config,
    data,
    diff,
    doctor,
    init,
    launch,
    lock,
    output,
    plan,
    presets,
    render,
    rule,
    runs,
    schema,
    smoke,
    validate,
    verify,
)

_EPILOG = (
    "Exit codes: 0 ok, 1 findings, 2 usage or unreadable recipe, 3 environment, 4 failed before the first "
    "step, 5 a bug of dsforge, 124 watchdog, 130 and 143 stopped by a signal; a run that failed later ends "
    "with the failing rank's code, signal N as 128 + N."
)

app = typer.Typer(
    name="dsforge",
    help="One readable recipe becomes a plan, files, a supervised training run.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _panel, _modules in {
    "Recipe": (init, validate, plan, diff, render, lock),
    "Run": (launch, smoke, verify),
    "Look up": (schema, presets, rule, doctor),
}.items():
    for _module in _modules:
        _module.register(app, _panel)
app.add_typer(runs.app, name="runs", rich_help_panel="Run")
app.add_typer(data.app, name="data", rich_help_panel="Recipe")
app.add_typer(config.app, name="config", rich_help_panel="Recipe")


def _version(wanted: bool) -> None:
    if wanted:
        from dsforge import __version__

        output.line(f"dsforge {__version__}")
        raise typer.Exit


@app.callback()
def _globals(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    del version


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; no exception leaves."""
    output.use_json(wanted="--json" in arguments)
    code = _call(arguments)
    try:
        sys.stdout.flush()
    except OSError as fault:
        return _after_refusal(fault, code)
    return code


def _call(arguments: Sequence[str]) -> int:
    try:
        result = app(args=list(arguments), prog_name="dsforge", standalone_mode=False)
    except DsforgeError as fault:
        output.error(fault)
        return int(fault.exit_code)
    except TyperException as fault:
        from typer.rich_utils import rich_format_error

        rich_format_error(fault)  # type: ignore[arg-type]  # every TyperException raised here is a ClickException
        return int(getattr(fault, "exit_code", ExitCode.USAGE))
    except OSError as fault:
        return _after_refusal(fault, ExitCode.OK)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except Exception as fault:  # noqa: BLE001 - the last line: a bug of ours becomes exit 5, not a traceback
        output.internal_error(fault)
        return int(ExitCode.BUG)
    return result if isinstance(result, int) else int(ExitCode.OK)


def _after_refusal(fault: OSError, code: int) -> int:
    """Return the exit code after the system refused something, most often a write to stdout."""
    if isinstance(fault, BrokenPipeError):  # the reader left: nothing to say to it, but the code stands
        output.drop(sys.stdout)
        return int(code)
    reason = fault.strerror or type(fault).__name__
    place = Place(file=os.fsdecode(fault.filename)) if isinstance(fault.filename, str | bytes) else None
    if fault.errno == errno.ENOSPC:
        output.drop(sys.stdout)
    hint = "it takes a shorter name, free space, or the right to read and write"
    output.error(DsforgeError("DSF064", f"the system refused: {reason}", place, hint))
    return int(ExitCode.ENVIRONMENT)


def run() -> None:
    """Entry point of the `dsforge` program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))
