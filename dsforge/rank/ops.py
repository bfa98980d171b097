"""Compiled kernels of a host: locks that a killed build has left, and building.

A lock left by a killed build makes every later run wait for ever (torch/utils/file_baton.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from dsforge.base.processes import has_open
from dsforge.records.probe import Build, Built, Locked, Locks

_BUILD = """
import importlib, signal, sys
from dsforge.base import prctl
prctl.signal_on_parent_death(signal.SIGKILL)
module, _, builder = sys.argv[1].partition(":")
getattr(importlib.import_module(module), builder)().load()
"""


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
    held = tuple(lock for lock in found if has_open(lock))
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


def build(builder: str, environ: Mapping[str, str], seconds: float) -> str | None:
    """Compile a kernel in a process of its own; return why it could not be built.

    `builder`: `MODULE:CLASS` of a builder of deepspeed's.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _BUILD, builder],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {seconds:.0f} s"
    if done.returncode == 0:
        return None
    *_, last_line = done.stdout.strip().splitlines() or [f"exit code {done.returncode}"]
    return last_line


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
