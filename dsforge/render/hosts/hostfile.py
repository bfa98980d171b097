"""The hostfile, `HOST slots=N` a line: read more strictly than the engine, which drops what it cannot use."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsforge.base.errors import DsforgeError, Finding, Place, Severity
from dsforge.recipe.host_names import MOST_HOSTS, HostError, expand, is_loopback, same, split

Hosts = dict[str, int]
"""Slots by host, in the order of the nodes."""

_LINE = re.compile(r"(\S+)[ \t]+slots=([0-9]{1,9})")
_ALMOST = re.compile(r"(?:max_slots\s*=\s*\d+\s+)?slots\s*[=:]?\s*([0-9]{1,6})(?![0-9])", re.IGNORECASE)
_ENTRY = re.compile(r"([^\s,]+)[ \t]+slots=([0-9]{1,9})(?=[\s,]|$)")
_SEVERAL = re.compile(r"\S+[ \t]+(?!(?:max_)?slots)[A-Za-z0-9]", re.IGNORECASE)
_COUNT = "slots are a whole number above 0"
_MOST_SHOWN = 100
_MOST_SLOTS = 1_048_576
_MOST_FAULTS = 50


def parse_hostfile(text: str, file: str) -> Hosts:
    """Return slots by host, in order; DsforgeError DSF040 tells of every line that is wrong.

    Node sets (`node[01-04] slots=8`) become their hosts. A byte-order mark, either kind of line end, comments
    and blank lines are taken; two spellings of one host, or names that the engine cannot filter, are not.
    """
    hosts: Hosts = {}
    lines: dict[str, int] = {}
    loopback: tuple[str, Place] | None = None
    faults: list[Finding] = []
    for number, column, line in _lines(text):
        place = Place(file, number, column)
        try:
            names, slots = _read(line, MOST_HOSTS - len(lines))
        except HostError as fault:
            faults.append(_fault(str(fault), place, fault.hint))
            continue
        for host in names:
            if same(host) in lines:
                message = f"host `{host}` stands twice"
                if lines[same(host)] != number:
                    message += f", first in line {lines[same(host)]}"
                faults.append(_fault(message, place, "keep one line a host"))
            elif is_loopback(host) and loopback is None:
                loopback = host, place
            lines.setdefault(same(host), number)
            hosts.setdefault(host, slots)
    if loopback and len(lines) > 1:
        message = f"`{loopback[0]}` is another machine on each of several hosts"
        faults.append(_fault(message, loopback[1], "write the name by which the other hosts reach it"))
    if not hosts and not faults:
        faults.append(_fault("names no host", Place(file), "one line a host: `node1 slots=8`"))
    if faults:
        raise _refusal(faults, file)
    return hosts


def render_hosts(hosts: Hosts) -> str:
    """Return the hostfile's text."""
    return "".join(f"{host} slots={slots}\n" for host, slots in hosts.items())


def _lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (number, column, text) of lines that say something, split where the engine splits."""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")), start=1):
        line = raw.split("#", 1)[0].rstrip()
        bare = line.lstrip()
        if bare:
            yield number, len(line) - len(bare) + 1, bare


def _read(line: str, most: int) -> tuple[list[str], int]:
    """Return the hosts of a line, not more than `most`, and their slots; HostError."""
    match = _LINE.fullmatch(line)
    if not match or len(split(match[1])) > 1:
        raise HostError(f"`{line[:_MOST_SHOWN]}` is not `HOST slots=N`{_why(line)}", _mended(line))
    names, slots = expand(match[1], most), int(match[2])
    if slots < 1:
        raise HostError(f"host `{match[1]}` has no slots: {_COUNT}", "remove it, or give it slots")
    if slots > _MOST_SLOTS:
        raise HostError(f"host `{match[1]}` has {slots:,} slots", "write the number of its GPUs")
    return names, slots


def _why(line: str) -> str:
    """Return what is wrong with a line that begins as a right one, where the engine sees nothing wrong."""
    begun = _LINE.match(line)
    if begun is None or not line[begun.end() :]:
        return ""
    rest = line[begun.end() :]
    if rest[0].isdigit():
        return ""
    if rest[0].isalpha() or rest[0] in "._-":
        return f": {_COUNT}"
    return f": `{rest.strip()[:_MOST_SHOWN]}` stands behind the slots"


def _mended(line: str) -> str:
    """Return the line that was probably meant, where one can be told from it."""
    word = line.split(maxsplit=1)[0]
    names = split(word.rstrip(",:"))
    try:
        for name in names:
            expand(name)
    except HostError as fault:
        return fault.hint
    rest = line[len(word) :]
    said = _ALMOST.search(rest)
    slots = str(int(said[1])) if said and int(said[1]) else "N"
    entries = _ENTRY.findall(line)
    if len(entries) > 1:
        told = " and ".join(f"`{host} slots={count}`" for host, count in entries[:3])
        return f"write {told[:_MOST_SHOWN]}, one line a host"
    if _SEVERAL.match(line):
        return f"write one line a host, the first of them `{names[0]} slots={slots}`"
    lines = " and ".join(f"`{name} slots={slots}`" for name in names[:3])
    return f"write {lines[:_MOST_SHOWN]}" + (", N the number of its GPUs" if slots == "N" else "")


def _fault(message: str, place: Place, hint: str) -> Finding:
    return Finding("DSF040", Severity.ERROR, message, None, place, hint)


def _refusal(faults: list[Finding], file: str) -> DsforgeError:
    first, *more = sorted(faults, key=lambda fault: (fault.place and fault.place.line) or 0)
    left_out = len(more) - _MOST_FAULTS
    if left_out > 0:
        rest = _fault(f"{left_out} more lines are wrong", Place(file), "correct these first")
        more = [*more[:_MOST_FAULTS], rest]
    return DsforgeError("DSF040", first.message, first.place, first.hint, findings=tuple(more))
