"""Compiled kernels: one folder an environment, built before the ranks start, stale locks cleared.

Two environments that share a folder rebuild each other's kernels, and a lock left by a killed build makes
every later run wait for ever (torch/utils/file_baton.py).
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from dsforge.base.caches import cache_root
from dsforge.base.processes import has_open

_BUILD_SECONDS = 1_800.0
_BUILDERS = {"FusedAdam": "FusedAdamBuilder"}
_FOLDERS = {"FusedAdam": "fused_adam"}
_BUILD = """
import signal
from dsforge.base import prctl
prctl.signal_on_parent_death(signal.SIGKILL)
from deepspeed.ops.op_builder import {builder}
{builder}().load()
"""


def ops_dir(environ: Mapping[str, str]) -> Path:
    """Return TORCH_EXTENSIONS_DIR: the user's, or one for this Python prefix and torch version; absolute."""
    if chosen := environ.get("TORCH_EXTENSIONS_DIR"):
        return Path(chosen).absolute()
    try:
        torch_version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch_version = "none"
    mark = hashlib.sha256(f"{sys.prefix}\n{torch_version}".encode()).hexdigest()[:16]
    return cache_root(environ) / "ops" / mark


def clear_stale_locks(folder: Path) -> tuple[Path, ...]:
    """Remove and return build locks that no live process has open; OSError when one cannot be removed.

    Only `FOLDER/OP/lock` of a build of torch's: the folder may be the user's own and hold other things.
    """
    stale = [
        lock
        for lock in sorted(folder.glob("*/lock"))
        if lock.is_file() and not lock.is_symlink() and _is_build(lock.parent) and not has_open(lock)
    ]
    for lock in stale:
        lock.unlink(missing_ok=True)
    return tuple(stale)


def _is_build(folder: Path) -> bool:
    """Tell whether torch builds here; killed early it leaves only the lock (torch/utils/cpp_extension.py)."""
    if folder.is_symlink():
        return False
    names = {path.name for path in folder.iterdir()}
    return "build.ninja" in names or (names == {"lock"} and folder.name in _FOLDERS.values())


def folder_of(name: str) -> str:
    """Return the folder in `ops_dir` that a kernel is built in."""
    return _FOLDERS[name]


def needed_ops(accelerator: str, ds_config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kernels that the engine would compile at start under this ds_config.json."""
    if accelerator == "cpu":
        return ()  # on a CPU torch's own Adam is rendered, which compiles nothing
    optimizer = ds_config.get("optimizer") or {}
    if str(optimizer.get("type", "")).lower() not in ("adam", "adamw"):
        return ()
    return () if (optimizer.get("params") or {}).get("torch_adam") else ("FusedAdam",)


def build_ops(names: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Compile kernels in a process of their own; return why, a line for each that could not be built."""
    failures = []
    for name in names:
        program = _BUILD.format(builder=_BUILDERS[name])
        try:
            done = subprocess.run(
                [sys.executable, "-c", program],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_BUILD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            failures.append(f"{name} cannot be built: it took more than {_BUILD_SECONDS:.0f} s")
            continue
        if done.returncode != 0:
            *_, last_line = done.stdout.strip().splitlines() or [f"exit code {done.returncode}"]
            failures.append(f"{name} cannot be built: {last_line}")
    return tuple(failures)
