"""The command line: `run` is the one place that turns errors into exit codes."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.cli import (
    complete,
    config,
    data,
    diff,
    doctor,
    explain,
    hostfile,
    init,
    launch,
    lock,
    output,
    plan,
    preflight,
    presets,
    render,
    rule,
    runs,
    schema,
    smoke,
    tune,
    validate,
    verify,
)
from dsforge.cli.panels import PanelGroup

_EPILOG = (
    "Exit codes: 0 ok, 1 findings, 2 usage or unreadable recipe, 3 environment, 4 failed before the first "
    "step, 5 a bug of dsforge, 124 watchdog, 130 and 143 stopped by a signal; a run that failed later ends "
    "with the failing rank's code, signal N as 128 + N."
)

_HELP_OPTIONS = frozenset({"-h", "--help"})

app = typer.Typer(
    name="dsforge",
    help="One readable recipe becomes a plan, files, a supervised training run.",
    epilog=_EPILOG,
    cls=PanelGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": sorted(_HELP_OPTIONS)},
)
for _panel, _modules in {
    "Recipe": (init, validate, plan, explain, diff, render, lock),
    "Run": (preflight, launch, smoke, verify, tune),
    "Look up": (schema, presets, rule, doctor),
}.items():
    for _module in _modules:
        _module.register(app, _panel)
app.add_typer(runs.app, name="runs", rich_help_panel="Run")
app.add_typer(data.app, name="data", rich_help_panel="Recipe")
app.add_typer(config.app, name="config", rich_help_panel="Recipe")
app.add_typer(hostfile.app, name="hostfile", rich_help_panel="Recipe")


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
        output.flush()
    except OSError as fault:
        return _after_refusal(fault, code)
    return code


def _call(arguments: Sequence[str]) -> int:
    try:
        result = app(args=list(arguments), prog_name="dsforge", standalone_mode=False)
    except DsforgeError as fault:
        return _after_error(fault)
    except TyperException as fault:
        return _after_usage(fault)
    except OSError as fault:
        return _after_refusal(fault, ExitCode.OK)
    except KeyboardInterrupt:
        result = int(ExitCode.INTERRUPTED)
    except SystemExit as ended:
        if complete.is_asked() or not ended.code:  # typer's answers to a shell end so
            return int(ended.code or 0)
        # Otherwise it was rich, which ends the process when the reader of a help text leaves.
        asked = not _HELP_OPTIONS.isdisjoint(arguments)
        result = int(ExitCode.OK if asked else ExitCode.USAGE)
    except Exception as fault:  # noqa: BLE001 - the last line: a bug of ours becomes exit 5, not a traceback
        output.internal_error(fault)
        return int(ExitCode.BUG)
    return result if isinstance(result, int) else int(ExitCode.OK)


def _after_error(fault: DsforgeError) -> int:
    with contextlib.suppress(OSError):  # stdout refuses the JSON: the code still says it
        output.error(fault)
    return int(fault.exit_code)


def _after_usage(fault: TyperException) -> int:
    context = getattr(fault, "ctx", None)
    hint = f"`{context.command_path if context else 'dsforge'} --help` shows arguments and options"
    return _after_error(DsforgeError("DSF068", fault.format_message(), None, hint, ExitCode.USAGE))


_REFUSALS = {
    errno.EBADF: "leave it open, or send it to a file: `> FILE`",
    errno.EISDIR: "it is a folder: name a file, or remove it",
    errno.ENOTDIR: "a folder on the way to it is a file: name another place, or remove that file",
    errno.ELOOP: "put the file itself there, or remove the link",
    errno.EINVAL: "it cannot be read or written as a file: put a regular file there, or name another",
}


def _after_refusal(fault: OSError, code: int) -> int:
    """Return the exit code after the system refused something, most often a write to stdout.

    A command that had failed before, by `code`, keeps its code.
    """
    reason = fault.strerror or type(fault).__name__
    place = Place(file=os.fsdecode(fault.filename)) if isinstance(fault.filename, str | bytes) else None
    hint = _REFUSALS.get(
        fault.errno or 0, "it takes a shorter name, free space, or the right to read and write"
    )
    refused = DsforgeError("DSF064", f"the system refused: {reason}", place, hint, ExitCode.ENVIRONMENT)
    _after_error(refused)
    return int(code) or int(ExitCode.ENVIRONMENT)


def run() -> None:
    """Entry point of the `dsforge` program."""
    output.open_streams()
    complete.after_equals(os.environ)
    code = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # at its end Python would make this exit code 120
            output.drop(stream)
    sys.exit(code)
