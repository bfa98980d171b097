"""The printing module: data on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.base.text import one_line, printable, shortened, without_secrets

SCHEMA_VERSION = 1
_STDERR = 2
_PLAIN_WIDTH = 80
_json_mode = False
_stdout_was_closed = False


def use_json(*, wanted: bool = True) -> None:
    """Make errors of this command appear on stdout as JSON too, or not."""
    global _json_mode  # noqa: PLW0603 - one process prints for one command
    _json_mode = wanted


def open_streams() -> None:
    """Make stdin, stdout and stderr exist and take UTF-8; one that the caller closed leads nowhere.

    Otherwise the next file that is opened would get its number, and what is printed would go there.
    """
    global _stdout_was_closed  # noqa: PLW0603 - one process prints for one command
    _stdout_was_closed = sys.stdout is None
    while (handle := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(handle, True)
    os.close(handle)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - a descriptor, kept open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def need_stdout() -> None:
    """Raise OSError where the caller closed stdout: for a command that is all for what it prints."""
    if _stdout_was_closed:
        raise OSError(errno.EBADF, "stdout is closed")


def drop(stream: TextIO) -> None:
    """Send what is still to be written nowhere: the command goes on without its reader."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def data(text: str) -> None:
    """Write text to stdout as it is; OSError when the system refuses it, a reader that left is no fault."""
    with _reader_may_leave():
        sys.stdout.write(text)


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        drop(sys.stdout)
    except OSError:
        drop(sys.stdout)  # or what is held back would be refused again at every later write
        raise


def line(text: str = "") -> None:
    """Write one line of data to stdout, control characters escaped."""
    data(printable(text) + "\n")


def note(text: str) -> None:
    """Write one line to stderr."""
    note_raw(printable(text))


def flush() -> None:
    """Send out what stdout holds back; OSError as `data`."""
    with _reader_may_leave():
        sys.stdout.flush()


@contextlib.contextmanager
def expendable() -> Iterator[None]:
    """Tell the result of what took long: when stdout refuses it, the exit code still says it."""
    try:
        yield
        flush()
    except (OSError, ValueError) as fault:
        note(f"warning: the result could not be printed: {getattr(fault, 'strerror', None) or fault}")


def live(text: str) -> None:
    """Write text to stderr over the line that stands there."""
    _to_stderr("\r" + printable(text))


def as_json(value: dict[str, Any]) -> None:
    """Write one JSON object with its schema version to stdout."""
    # ASCII only: a file name that is not UTF-8 still makes a JSON text that every reader takes.
    data(json.dumps({"schema_version": SCHEMA_VERSION, **value}, indent=2) + "\n")


def _color(stream: Any) -> bool:
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _paint(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if _color(sys.stderr) else text


_LONGEST_MESSAGE = 2_000
"""Characters of a message, a place or a hint that are shown; --json has them whole."""
_COLORS = {Severity.ERROR: "1;31", Severity.WARNING: "1;33", Severity.NOTE: "1;36"}


def finding(found: Finding) -> None:
    """Write one finding to stderr: what, where with the line itself, and the edit that mends it."""
    head = _paint(f"{found.severity.value}[{found.code}]", _COLORS[found.severity])
    note_raw(f"{head}: {short(printable(found.message))}")
    if found.place and str(found.place):
        note(f"  --> {short(str(found.place))}")
        snippet = _snippet(found.place)
        if snippet:
            note(f"   |  {snippet}")
    if found.hint:
        note(f"  hint: {short(found.hint)}")
    elif found.fix:
        note(f"  hint: {short(str(found.fix))}")


def short(text: str) -> str:
    """Return a text as far as a line of ours shows it."""
    return shortened(one_line(text), _LONGEST_MESSAGE)


def note_raw(text: str) -> None:
    """Write one line to stderr that may carry colours of ours."""
    _to_stderr(text + "\n")


def _to_stderr(text: str) -> None:
    """Write to stderr, or nowhere: no command fails because its words could not be shown."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        drop(sys.stderr)


def _snippet(place: Place) -> str | None:
    if place.file is None or place.line is None:
        return None
    try:
        with Path(place.file).open(encoding="utf-8", errors="replace") as stream:
            for number, text in enumerate(stream, start=1):
                if number == place.line:
                    return without_secrets(text.strip()[:100])
    except (OSError, ValueError):
        return None
    return None


def findings(found: Iterable[Finding]) -> None:
    """Write several findings to stderr."""
    for one in found:
        finding(one)


def error(fault: DsforgeError) -> None:
    """Write an error and the findings it carries; under --json also as an object on stdout."""
    first = Finding(fault.code, Severity.ERROR, fault.message, None, fault.place, fault.hint)
    findings([first, *fault.findings])
    if _json_mode:
        everything = [first, *fault.findings]
        as_json({"error": first.as_dict(), "findings": [one.as_dict() for one in everything]})


def internal_error(fault: BaseException) -> None:
    """Write a bug of ours: one line, and the traceback when DSFORGE_DEBUG is set."""
    name = type(fault).__name__
    note_raw(f"{_paint('error[DSF000]', '1;31')}: internal error: {printable(f'{name}: {fault}')[:500]}")
    if os.environ.get("DSFORGE_DEBUG"):
        note_raw("".join(traceback.format_exception(fault)))
    else:
        note("  hint: this is a fault of dsforge, please report it; DSFORGE_DEBUG=1 shows the traceback")


def width() -> int:
    """Return the characters of a line: the terminal's, 80 where stdout is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PLAIN_WIDTH


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a plain table to stdout: columns as wide as their content, readable without colour."""
    cells = [[" ".join(printable(cell).split("\n")) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    if title:
        line(title)
    line("  " + "  ".join(name.ljust(width) for name, width in zip(columns, widths, strict=True)).rstrip())
    for row in cells:
        line("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


_BAR_COLORS = ("44", "46", "45", "42", "43", "41", "100")
_NARROW, _WIDE = 60, 100


def bars(
    rows: Iterable[tuple[str, Mapping[str, int], str]],
    legend: Mapping[str, str],
    whole: int,
    mark: int | None,
) -> None:
    """Write one bar a row: a name, the lengths of its parts by letter, and a figure behind it.

    `whole` is as long as the space for bars; at `mark` stands a line. On a terminal the parts have colours,
    elsewhere they are told apart by their letters alone.
    """
    colors = dict(zip(legend, _BAR_COLORS, strict=True)) if _color(sys.stdout) else {}
    columns = shutil.get_terminal_size((_WIDE, 24)).columns if sys.stdout.isatty() else _WIDE
    cells = [(printable(name), parts, printable(figure)) for name, parts, figure in rows]
    names = max((len(name) for name, _, _ in cells), default=0)
    figures = max((len(figure) for _, _, figure in cells), default=0)
    space = min(max(columns, _NARROW), _WIDE) - names - figures - 7
    for name, parts, figure in cells:
        bar: list[str] = []
        ends = 0
        for letter, length in parts.items():
            ends += length
            bar += [letter] * (round(space * ends / max(1, whole)) - len(bar))
        bar += [" "] * (space - len(bar))
        if mark is not None:
            bar.insert(round(space * mark / max(1, whole)), "|")
        painted = "".join(f"\x1b[30;{colors[one]}m{one}\x1b[0m" if one in colors else one for one in bar)
        data(f"  {name.ljust(names)}  {painted}  {figure}\n")
    line("  " + ", ".join(f"{letter} {name}" for letter, name in legend.items()))
