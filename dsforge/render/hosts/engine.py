"""What deepspeed's launchers are told of the world, and where the system has no room for it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.render.hosts.world import Gpus

LONGEST_WORD = 131_071
"""Bytes of one argument of a program under Linux: MAX_ARG_STRLEN without the NUL at its end."""


def world_info(ranks: Mapping[str, Sequence[int]]) -> str:
    """Return the GPUs of each host's ranks as `deepspeed.launcher.launch --world_info` takes them.

    The hosts go by their number: a host's launcher reads their order alone, and names would leave room for
    half as many.
    """
    numbered = {str(node): [*gpus] for node, gpus in enumerate(ranks.values())}
    return base64.urlsafe_b64encode(json.dumps(numbered, separators=(",", ":")).encode()).decode()


def include(gpus: Gpus) -> str:
    """Return a choice of GPUs as deepspeed's `--include` takes it: every GPU by its number."""
    return "@".join(f"{host}:{','.join(map(str, chosen))}" for host, chosen in gpus.items())


def pdsh_bytes(ranks: Mapping[str, Sequence[int]], environ: Mapping[str, str]) -> int:
    """Return the length of what deepspeed's runner asks of a host: one argument of pdsh's ssh."""
    world = json.dumps({host: [*gpus] for host, gpus in ranks.items()})
    exports = sum(len(f"export {name}={value}; ".encode()) for name, value in environ.items())
    return -(-len(world) // 3) * 4 + exports


def check_room(needed: int, room: int, hosts: int, hint: str) -> None:
    """Raise DsforgeError DSF091 where the world does not fit into one argument."""
    if needed > room:
        raise DsforgeError(
            "DSF091",
            f"the ranks of {hosts:,} hosts take {needed:,} bytes of an argument that has room for {room:,}",
            hint=hint,
            exit_code=ExitCode.FINDINGS,
        )
