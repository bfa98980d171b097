"""What a launch would start on each host: told by the bundle's own script, which stops short of it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dsforge.launch import machine
from dsforge.launch.command import FREE_PORT, build_command
from dsforge.launch.launchers import launcher_of
from dsforge.launch.preflight import Preflight
from dsforge.launch.stand_in import AttemptHosts
from dsforge.launch.types import Command, HostStart, LaunchDescription, LaunchRequest, Started
from dsforge.records import environment
from dsforge.records.run_dir import RunDir

_SECONDS = 60.0
_NOT_SHOWN = "(from your environment)"


def tell_starts(
    described: LaunchDescription,
    request: LaunchRequest,
    found: Preflight,
    around: Mapping[str, str] | None = None,
) -> LaunchDescription:
    """Return a description with what starts on each host; it writes into a temporary folder alone.

    `around`: variables of a job that is yet to come.
    """
    starts_of = launcher_of(request.plan).starts
    if found.bash is None or starts_of is None:
        return replace(described, untold="bash is not installed" if starts_of else "its scheduler starts all")
    with tempfile.TemporaryDirectory(prefix="dsforge-dry-run-") as folder:
        run_dir = RunDir(Path(folder) / described.run_dir.name)
        request.bundle.write(run_dir.bundle)
        command = build_command(
            request,
            run_dir,
            1,
            bundle=run_dir.bundle,
            bash=found.bash,
            deepspeed=found.deepspeed,
            master_port=request.environ.get("MASTER_PORT") or FREE_PORT,
            ops_dir=found.ops_dir,
            python_path=machine.python_path(request.environ),
        )
        command.cwd.mkdir()
        AttemptHosts(request, run_dir, found).write(run_dir.attempt(1))
        told = Path(folder) / "told"
        hidden = dict.fromkeys(request.plan.launch.env_from, _NOT_SHOWN)
        own = {**hidden, **command.environ, **(around or {}), environment.TOLD: str(told)}
        untold = _run(command, {**request.environ, **own})
        if untold is not None or not told.is_file():
            return replace(described, untold=untold or "it does not say")
        text = told.read_bytes().decode("utf-8", "surrogateescape")
        place = str(described.run_dir)
        started = _started(
            text.replace(str(run_dir.path), place), str(command.cwd).replace(str(run_dir.path), place)
        )
    starts = starts_of(started, request, found.hosts)
    return replace(described, started=started.argv, starts=_without(request.plan.launch.env_from, starts))


def _run(command: Command, environ: Mapping[str, str]) -> str | None:
    """Run a script to where it tells; return its last word where it ends before."""
    try:
        done = subprocess.run(
            command.argv,
            cwd=command.cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it takes longer than {_SECONDS:g} s"
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no word of it"])[-1]


def _started(text: str, cwd: str) -> Started:
    variables, _, words = text.partition("\0\0")
    environ = dict(one.split("=", 1) for one in variables.split("\0") if "=" in one)
    return Started(tuple(words.removesuffix("\0").split("\0")), environ, cwd)


def _without(secrets: Sequence[str], starts: Sequence[HostStart]) -> tuple[HostStart, ...]:
    return tuple(
        replace(one, environ={name: text for name, text in one.environ.items() if name not in secrets})
        for one in starts
    )
