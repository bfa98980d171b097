"""A hostfile as deepspeed's launcher reads it, line by line, against what its author meant."""

from __future__ import annotations

import re

from dsforge.base.errors import Finding, Place, Severity

_ENGINE = re.compile(r"^(\S+)\s+slots=(\d+)")
"""The launcher's own pattern: the rest of the line is never looked at."""
_SEPARATORS = (":", "@")
_MOST_DIGITS = 4300
"""Of a number that Python makes of a text."""


def check_hostfile(text: str, file: str) -> list[Finding]:
    """Return what the launcher would do with each line that it takes otherwise than it is written."""
    found: list[Finding] = []
    first: dict[str, int] = {}
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        place = Place(file, number, len(raw) - len(raw.lstrip()) + 1)
        if not line or line.startswith("#"):
            continue
        match = _ENGINE.match(line)
        if not match:
            found.append(_refused(line, place))
            continue
        host, slots = match[1], int(match[2][:18])
        if host in first:
            message = (
                f"host `{host}` stands twice, first in line {first[host]}: the launcher refuses the file"
            )
            found.append(_error("DSF673", message, place, "keep one line a host"))
        first.setdefault(host, number)
        found += _host_faults(host, place)
        rest = line[match.end() :]
        if rest and not rest.isspace():
            message = (
                f"the launcher reads `{line[:60]}` as {slots} slots and never looks at `{rest.strip()[:40]}`"
            )
            severity = Severity.WARNING if rest.lstrip() != rest else Severity.ERROR
            hint = f"write `{host} slots={slots}`"
            found.append(Finding("DSF671", severity, message, None, place, hint))
        if slots == 0:
            message = f"host `{host}` has no slots: the launcher keeps it and starts nothing there"
            found.append(_error("DSF671", message, place, "remove the line, or give it slots"))
    if not first and not found:
        found.append(
            _error("DSF670", "names no host: the launcher refuses it", Place(file), "add `HOST slots=N`")
        )
    return found


def as_read(text: str) -> dict[str, int] | None:
    """Return slots by host as the launcher reads them; None where it refuses the file."""
    hosts: dict[str, int] = {}
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _ENGINE.match(line)
        if not match or match[1] in hosts or len(match[2]) > _MOST_DIGITS:
            return None
        hosts[match[1]] = int(match[2])
    return hosts or None


def _error(code: str, message: str, place: Place, hint: str) -> Finding:
    return Finding(code, Severity.ERROR, message, None, place, hint)


def _refused(line: str, place: Place) -> Finding:
    words = line.split()
    near = re.search(r"slots\s*=\s*(\d+)", line, re.IGNORECASE)
    count = near[1] if near else "N"
    message = f"the launcher refuses `{line[:60]}`: a line is `HOST slots=N`, no blanks around `=`"
    return _error("DSF670", message, place, f"write `{words[0][:60]} slots={count}`")


def _host_faults(host: str, place: Place) -> list[Finding]:
    if host.startswith("\ufeff"):
        message = "a byte-order mark becomes part of the first host's name, which no resolver knows"
        return [_error("DSF672", message, place, "save the file as UTF-8 without a byte-order mark")]
    if host.startswith("-"):
        message = f"host `{host[:60]}` starts with a dash: ssh takes it for an option"
        return [_error("DSF672", message, place, "write the host's name")]
    if "," in host:
        hosts = ", ".join(f"`{name}`" for name in host.split(",")[:4])
        message = f"`{host[:60]}` is one host of this name to the launcher, not {hosts}"
        return [_error("DSF672", message, place, "one line a host")]
    for mark in _SEPARATORS:
        if mark in host:
            message = (
                f"host `{host[:60]}` holds `{mark}`, which --include and --exclude take for the end of a host"
            )
            hint = "write the plain host name; user and port belong in ~/.ssh/config"
            return [Finding("DSF672", Severity.WARNING, message, None, place, hint)]
    return []
