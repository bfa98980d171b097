"""What deepspeed's launchers are told of the world, and where the system has no room for it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.render.hosts.hostfile import Hosts

LONGEST_WORD = 131_071
"""Bytes of one argument of a program under Linux: MAX_ARG_STRLEN without the NUL at its end."""


def world_info(hosts: Hosts) -> str:
    """Return the ranks of each host as `deepspeed.launcher.launch --world_info` takes them.

    The hosts go by their number: a host's launcher reads their order alone, and names would leave room for
    half as many.
    """
    numbered = {str(node): [*range(slots)] for node, slots in enumerate(hosts.values())}
    return _encoded(json.dumps(numbered, separators=(",", ":")))


def named_world_info(hosts: Hosts) -> str:
    """Return the same as deepspeed's own runner writes it."""
    return _encoded(json.dumps({host: [*range(slots)] for host, slots in hosts.items()}))


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def pdsh_bytes(hosts: Hosts, environ: Mapping[str, str]) -> int:
    """Return the length of what deepspeed's runner asks of a host: one argument of pdsh's ssh."""
    exports = sum(len(f"export {name}={value}; ".encode()) for name, value in environ.items())
    return len(named_world_info(hosts)) + exports


def check_room(needed: int, room: int, hosts: int, hint: str) -> None:
    """Raise DsforgeError DSF091 where the world does not fit into one argument."""
    if needed > room:
        raise DsforgeError(
            "DSF091",
            f"the ranks of {hosts:,} hosts take {needed:,} bytes of an argument that has room for {room:,}",
            hint=hint,
            exit_code=ExitCode.FINDINGS,
        )
