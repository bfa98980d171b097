"""Compiled kernels of a host: locks that a killed build has left, and building.

A lock left by a killed build makes every later run wait for ever (torch/utils/file_baton.py).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from dsforge.base import processes
from dsforge.records.probe import Build, Built, Locked, Locks

# The compilers that ninja starts are told of nobody's death: this process, of whose they are, ends them.
_BUILD = """
import importlib, os, signal, sys
from dsforge.base import prctl, processes
def end(*_):
    processes.end_session(os.getpid())
    os._exit(1)
signal.signal(signal.SIGTERM, end)
prctl.signal_on_parent_death(signal.SIGTERM)
module, _, builder = sys.argv[1].partition(":")
getattr(importlib.import_module(module), builder)().load()
"""
_TICK_SECONDS = 0.2


def locks(folder: Path, kernels: Collection[str]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the build locks of a folder: those that a process of this host has open, and the others.

    Only `FOLDER/OP/lock` of a build of torch's: the folder may be the user's own and hold other things.
    `kernels`: folders of which a lock alone is that of a build, killed early.
    """
    found = [
        lock
        for lock in sorted(folder.glob("*/lock"))
        if lock.is_file() and not lock.is_symlink() and _is_build(lock.parent, kernels)
    ]
    held = tuple(lock for lock in found if processes.has_open(lock))
    return held, tuple(lock for lock in found if lock not in held)


def clear(stale: Collection[Path]) -> tuple[Path, ...]:
    """Remove locks and return those that were there; OSError when one cannot be removed."""
    there = tuple(lock for lock in stale if lock.exists())
    for lock in there:
        lock.unlink(missing_ok=True)
    return there


def built(folder: Path) -> tuple[str, ...]:
    """Return the kernels that are built in a folder."""
    return tuple(sorted({path.parent.name for path in folder.glob("*/*.so")}))


def build(
    builder: str, environ: Mapping[str, str], seconds: float, is_stopped: Callable[[], bool] = lambda: False
) -> str | None:
    """Compile a kernel, in processes that do not outlive this; return why it could not be built.

    `builder`: `MODULE:CLASS` of a builder of deepspeed's. `is_stopped`: whether somebody wants it to end.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", _BUILD, builder],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            why = _wait(process, seconds, is_stopped)
        finally:
            processes.end_session(process.pid)
            process.wait()
        if why is not None or process.returncode == 0:
            return why
        said.seek(0)
        *_, last_line = said.read().strip().splitlines() or [f"exit code {process.returncode}"]
        return last_line


def _wait(process: subprocess.Popen[bytes], seconds: float, is_stopped: Callable[[], bool]) -> str | None:
    """Wait for a build, and return why it is not waited for any longer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TICK_SECONDS)
            return None
        if is_stopped():
            return "it was stopped"
    return f"it took more than {seconds:.0f} s"


def answer_locks(asked: Locks) -> Locked:
    """Return the locks of a host's builds."""
    held, stale = locks(Path(asked.folder), asked.kernels)
    return Locked(tuple(map(str, held)), tuple(map(str, stale)))


def answer_build(asked: Build) -> Built:
    """Remove locks and build what is not built; what fails is told."""
    began = time.monotonic()
    folder = Path(asked.folder)
    environ = {**os.environ, **asked.environ, "TORCH_EXTENSIONS_DIR": asked.folder}
    # A compiler's tools are looked for beside this Python first: ninja is installed with it.
    environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environ.get("PATH", os.defpath)))
    failed: dict[str, str] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        removed = clear([Path(lock) for lock in asked.stale])
    except OSError as error:
        return Built((), (), {}, f"{error.filename or folder}: {error.strerror}", time.monotonic() - began)
    missing = [kernel for kernel in asked.builders if kernel not in built(folder)]
    for kernel in missing:
        if (why := build(asked.builders[kernel], environ, asked.seconds)) is not None:
            failed[kernel] = why
    done = tuple(kernel for kernel in missing if kernel not in failed)
    return Built(tuple(map(str, removed)), done, failed, None, time.monotonic() - began)


def _is_build(folder: Path, kernels: Collection[str]) -> bool:
    """Tell whether torch builds here; killed early it leaves only the lock (torch/utils/cpp_extension.py)."""
    if folder.is_symlink():
        return False
    names = {path.name for path in folder.iterdir()}
    return "build.ninja" in names or (names == {"lock"} and folder.name in kernels)
