"""Compiled kernels: one folder an environment, built before the ranks start, stale locks cleared.

Two environments that share a folder rebuild each other's kernels.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from dsforge.base.caches import cache_root
from dsforge.rank import ops

_BUILD_SECONDS = 1_800.0
_BUILDERS = {"FusedAdam": "deepspeed.ops.op_builder:FusedAdamBuilder"}
_FOLDERS = {"FusedAdam": "fused_adam"}
KERNELS = tuple(_FOLDERS.values())
"""The folders in `ops_dir` that kernels are built in."""


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
    """Remove and return build locks that no live process has open; OSError when one cannot be removed."""
    _, stale = ops.locks(folder, KERNELS)
    return ops.clear(stale)


def folder_of(name: str) -> str:
    """Return the folder in `ops_dir` that a kernel is built in."""
    return _FOLDERS[name]


def builder_of(name: str) -> str:
    """Return what builds a kernel, as `MODULE:CLASS`."""
    return _BUILDERS[name]


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
    failures = ((name, ops.build(builder_of(name), environ, _BUILD_SECONDS)) for name in names)
    return tuple(f"{name} cannot be built: {why}" for name, why in failures if why is not None)
