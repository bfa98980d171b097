"""A hostfile as dsforge takes it, beside what the engine would make of the very file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsforge.base.errors import DsforgeError, Finding, Severity
from dsforge.catalog.engines.deepspeed import known_keys
from dsforge.foreign.hostfile import as_read
from dsforge.ops.bundles import read_hostfile
from dsforge.render.hosts import Hosts, parse_hostfile


@dataclass(frozen=True, slots=True)
class CheckedHostfile:
    """What dsforge takes a file for, None for its findings, and what the engine does, None if it refuses."""

    hosts: Hosts | None
    findings: tuple[Finding, ...]
    engine: str
    read: Hosts | None

    @property
    def alike(self) -> bool:
        """Whether the engine, given the very file, would start the same world."""
        return (
            self.hosts is not None
            and self.read is not None
            and list(self.hosts.items()) == list(self.read.items())
        )


def check_hostfile(path: Path) -> CheckedHostfile:
    """Return both readings of a file; DsforgeError DSF044 when there is none to read."""
    text = read_hostfile(path)
    engine, read = f"deepspeed {known_keys().version}", as_read(text)
    try:
        hosts = parse_hostfile(text, str(path))
    except DsforgeError as fault:
        first = Finding(fault.code, Severity.ERROR, fault.message, None, fault.place, fault.hint)
        return CheckedHostfile(None, (first, *fault.findings), engine, read)
    return CheckedHostfile(hosts, (), engine, read)
