"""Looks at all hosts of a run at once before anything starts, and says what would keep it from running."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dsforge.base.errors import DsforgeError, Finding, Severity
from dsforge.base.exits import ExitCode
from dsforge.base.lease import LeaseWatch
from dsforge.launch import machine, op_cache
from dsforge.launch.comparison import compare
from dsforge.launch.comparison.known import Known
from dsforge.launch.create import disk_error
from dsforge.launch.inputs import files_read
from dsforge.launch.launchers import launcher_of
from dsforge.launch.ssh import CONNECT_SECONDS, make_room, ssh_command
from dsforge.launch.survey import Seen, survey
from dsforge.launch.types import LaunchRequest
from dsforge.plan.run_cost import checkpoint_bytes
from dsforge.plan.types import Plan
from dsforge.rank.facts import host_facts
from dsforge.records.probe import Question

ANSWER_SECONDS = 30.0
"""For one answer of a host: Python starts there from a file system that thousands may read at once."""
_PROBE = "dsforge.rank.probe"
_PORTS = 20
_FILES_A_HOST = 3
"""Two pipes, and what ssh says."""
_RECORDS_BYTES = 64 * 10**6
"""Logs, metrics and events of a run: they grow, and this is where little is left."""


@dataclass(frozen=True, slots=True)
class HostCheck:
    """What was found on the hosts of a run, and every fault, errors first."""

    seen: tuple[Seen, ...]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The faults that keep the run from starting."""
        return tuple(one for one in self.findings if one.severity is Severity.ERROR)

    @property
    def failed(self) -> tuple[str, ...]:
        """The hosts that have one, in order."""
        named = {one.place.host for one in self.errors if one.place is not None}
        return tuple(seen.host for seen in self.seen if seen.host in named)


def check_hosts(request: LaunchRequest, hosts: Sequence[str], seconds: float = ANSWER_SECONDS) -> HostCheck:
    """Look at the hosts of a request with absolute paths; what is written to try a folder is removed.

    No host has longer than `seconds` for an answer. DsforgeError where this host cannot write.
    """
    plan, environ = request.plan, {**request.environ, **request.extra_environ}
    ops = op_cache.ops_dir(request.environ)
    room = _room(request)
    with _tokens(room) as (names, texts):
        question = Question(
            environ=host_environ(plan, environ),
            gpus=plan.accelerator == "cuda",
            master="127.0.0.1" if launcher_of(plan).here else hosts[0],
            folders=names,
            files=files_read(request),
            ops=str(ops),
            interface=plan.launch.interface,
            disk=str(request.recipe_root / plan.offload.path) if plan.offload.path is not None else None,
        )
        try:
            make_room(_FILES_A_HOST * len(hosts))
        except ValueError as error:
            raise DsforgeError("DSF276", str(error), exit_code=ExitCode.ENVIRONMENT) from None
        port = machine.wanted_port(environ)
        ports = (port,) if port is not None else machine.some_ports(_PORTS)
        seen = tuple(survey(hosts, probe_command(plan, environ, seconds), environ, question, ports, seconds))
        here = host_facts(question)
    known = Known(
        plan=plan,
        question=question,
        here=here,
        seen=seen,
        tokens=texts,
        room={str(folder): size for folder, size in room.items()},
        port=port,
        dead_leases=_dead_leases(seen),
        python=sys.executable,
        seconds=seconds,
        chosen=request.bundle.chosen_gpus,
    )
    ds_config = json.loads(request.bundle.files.get("ds_config.json", "{}"))
    return HostCheck(seen, compare(known, op_cache.needed_ops(plan.accelerator, ds_config)))


def refuse(check: HostCheck) -> None:
    """Raise the first error of a check, with all its other findings; DsforgeError."""
    if not check.errors:
        return
    first, *others = check.findings
    raise DsforgeError(
        first.code, first.message, first.place, first.hint, ExitCode.ENVIRONMENT, tuple(others)
    )


def host_environ(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what ranks have over a host's own variables."""
    return {"PATH": environ.get("PATH", os.defpath), **plan.launch.env}


def probe_command(plan: Plan, environ: Mapping[str, str], seconds: float) -> Callable[[str], list[str]]:
    """Return what runs, here with `environ`, the probe on a host: over ssh where the launcher does so."""
    launcher = launcher_of(plan)
    path = machine.python_path(environ)
    environ = environ if path is None else {**environ, "PYTHONPATH": path}
    variable = launcher.ssh
    if variable is None:
        return lambda _: [sys.executable, "-u", "-m", _PROBE]
    connect_seconds = max(1, min(CONNECT_SECONDS, int(seconds)))
    arguments = environ.get(variable, "")
    return lambda host: ssh_command(host, _PROBE, environ, arguments, connect_seconds)


def _room(request: LaunchRequest) -> dict[Path, int]:
    """Return the bytes that a run writes, records and one checkpoint, by what is there of its folders."""
    plan = request.plan
    runs = _existing(request.runs_root)
    named = plan.checkpoint.dir
    room = {runs: _RECORDS_BYTES}
    place = runs if named is None else _existing(request.recipe_root / named)
    saves = bool(plan.checkpoint.every_steps) or plan.checkpoint.at_end
    room[place] = room.get(place, 0) + saves * checkpoint_bytes(plan)
    return room


def _existing(folder: Path) -> Path:
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


@contextmanager
def _tokens(folders: Iterable[Path]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Put a file in every folder, and yield their names and their texts by folder."""
    made: dict[str, Path] = {}
    texts: dict[str, str] = {}
    try:
        for folder in folders:
            token = folder / f".dsforge-probe-{secrets.token_hex(8)}"
            text = secrets.token_hex(16)
            try:
                token.write_text(text, "ascii")
            except OSError as error:
                raise disk_error(folder, error) from error
            made[str(folder)], texts[str(folder)] = token, text
        yield {folder: token.name for folder, token in made.items()}, texts
    finally:
        for token in made.values():
            with contextlib.suppress(OSError):
                token.unlink()


def _dead_leases(seen: Sequence[Seen]) -> frozenset[str]:
    leases = {left.lease for one in seen if one.facts for left in one.facts.leftovers}
    return frozenset(lease for lease in leases if not LeaseWatch(Path(lease)).is_held())
