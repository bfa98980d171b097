"""Compares what hosts answered with the plan and with each other: one file a kind of fault, all pure."""

from __future__ import annotations

from dsforge.base.errors import Finding
from dsforge.launch.comparison import devices, files, network, others, reached, room, software
from dsforge.launch.comparison.known import Known

_CHECKS = (
    reached.check,
    software.check,
    devices.check,
    files.check,
    room.check,
    network.check,
    others.check,
)


def compare(known: Known, needed_ops: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    """Return every fault, errors first, those that keep hosts from answering before all others."""
    found = [finding for check in _CHECKS for finding in check(known)]
    found += software.check_ops(known, needed_ops)
    return tuple(sorted(found, key=lambda one: one.severity != "error"))
