"""What a checkout says of itself: which program it is, and which options its parser declares.

Its files are read as text, never imported. What they declare tells more than a revision does: a fork, a
patched tree or an unpacked archive has none that is known, and its parser still is what its text says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.base.exits import ExitCode
from dsforge.base.files import read_bounded
from dsforge.catalog.engines.flavours import FLAVOURS, Flavour, Row, flavour_of
from dsforge.external.mapping import keys_of
from dsforge.plan.types import Program

_MAX_BYTES = 4 << 20
_MOST_FILES = 4000
_FEWEST = 50
"""A parser that declares fewer names than this is not read well enough to say what it lacks."""
_NAME = re.compile(r"[\"'](--?[A-Za-z][\w-]*)[\"']|^    (\w+)[ \t]*:[^=\n]", re.MULTILINE)
"""An option's name as text, or a field of a class, of which options and keys are made."""
_MOST_TOLD = 10


def detect(folder: Path) -> Flavour | None:
    """Return the program that a folder is a checkout of; None where it is none that is known."""
    marked = (flavour_of(name) for name in FLAVOURS)
    return next((one for one in marked if one.marks and _has(folder, one.marks)), None)


def recognise(folder: Path) -> Flavour:
    """Return the program that a folder is a checkout of; DsforgeError DSF215 where it is none."""
    flavour = detect(folder)
    if flavour is None:
        names = ", ".join(name for name in FLAVOURS if flavour_of(name).marks)
        raise DsforgeError(
            "DSF215",
            f"{folder} is no checkout of a program that is known here",
            Place(file=str(folder)),
            f"name the top folder of one of {names}",
        )
    return flavour


def _has(folder: Path, names: Iterable[str]) -> bool:
    try:
        return all((folder / name).is_file() for name in names)
    except OSError:  # a folder that may not be entered
        return False


def check_options(program: Program, root: Path) -> None:
    """Raise DsforgeError DSF218 when a checkout's parser does not have what the run is started with."""
    folder = root / program.path
    found = list(lacking(program, folder))
    if found:
        first = found[0]
        raise DsforgeError(
            first.code, first.message, first.place, first.hint, ExitCode.FINDINGS, tuple(found[1:])
        )


def lacking(program: Program, folder: Path) -> Iterator[Finding]:
    """Yield an error for each option or key of a program's run that its checkout does not declare."""
    flavour = flavour_of(program.flavour)
    if program.configuration is not None:
        used = [*program.configuration]
    elif flavour.takes == "options":
        texts = [word.text.partition("=")[0] for word in program.arguments if word.base is None]
        used = [text for text in texts if text in {row.option for row in flavour.rows}]
    else:
        return
    yield from missing(flavour, folder, used, Severity.ERROR)


def missing(flavour: Flavour, folder: Path, used: Iterable[str], severity: Severity) -> Iterator[Finding]:
    """Yield a finding for each name that a checkout's files do not declare, unless they declare little."""
    names = declared(folder, flavour.declares)
    if len(names) < _FEWEST:
        return
    kind = "key" if flavour.takes == "configuration" else "option"
    rows = {row.option.partition(".")[0]: row for row in reversed(flavour.rows)}
    absent = [name for name in dict.fromkeys(used) if not _is_declared(name, names, flavour)]
    for name in itertools.islice(absent, _MOST_TOLD):
        says = _says(rows.get(name))
        message = f"the checkout declares no {kind} `{name}`, by which {flavour.name} is told {says}"
        hint = f"use a checkout that has it, such as revision {flavour.revisions[0]}"
        yield Finding("DSF218", severity, message, None, Place(file=str(folder)), hint)


def _says(row: Row | None) -> str:
    keys = keys_of(row) if row is not None else ()
    return f"`{keys[0]}`" if keys else "how to run"


def _is_declared(name: str, names: frozenset[str], flavour: Flavour) -> bool:
    words = {name, name.removeprefix("--no-"), name.removeprefix("--")}
    plain = {word.removeprefix("--").replace("-", "_") for word in words}
    return name in flavour.elsewhere or not names.isdisjoint(plain)


def declared(folder: Path, patterns: tuple[str, ...]) -> frozenset[str]:
    """Return every name that the files of some patterns may declare, as Python's names."""
    names: set[str] = set()
    files = itertools.chain.from_iterable(sorted(folder.glob(pattern)) for pattern in patterns)
    for file in itertools.islice(files, _MOST_FILES):
        try:
            text = read_bounded(file, _MAX_BYTES)
        except (OSError, ValueError):
            continue
        names |= {option or field for option, field in _NAME.findall(text)}
    return frozenset(name.lstrip("-").replace("-", "_") for name in names)
