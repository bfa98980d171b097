"""Compiled kernels: one folder an environment, built before the ranks start, stale locks cleared.

Two environments that share a folder rebuild each other's kernels.
"""

from __future__ import annotations

import hashlib
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from dsforge.base.caches import cache_root
from dsforge.base.errors import DsforgeError
from dsforge.base.exits import ExitCode
from dsforge.base.processes import signal_name
from dsforge.rank import ops

_BUILD_SECONDS = 1_800.0
_BUILDERS = {
    "FusedAdam": "deepspeed.ops.op_builder:FusedAdamBuilder",
    "CPUAdam": "deepspeed.ops.op_builder:CPUAdamBuilder",
    "AsyncIO": "deepspeed.ops.op_builder:AsyncIOBuilder",
}
_FOLDERS = {"FusedAdam": "fused_adam", "CPUAdam": "cpu_adam", "AsyncIO": "async_io"}
DISK = "AsyncIO"
"""Reads and writes what is offloaded to a disk; the only kernel that nothing of PyTorch's stands in for."""
_OFFLOADED = ("offload_optimizer", "offload_param")
NO_DISK = "AsyncIO, by which states go to a disk, cannot be built"
LIBAIO = "`apt install libaio-dev` on every host, or offload to the CPU"
KERNELS = (*_FOLDERS.values(), "pin_memory")
"""The folders in `ops_dir` that kernels are built in; AsyncIO builds the last one for itself."""


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


def not_built(names: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Return the kernels that are still to be compiled in a folder."""
    built = ops.built(folder)
    return tuple(name for name in names if folder_of(name) not in built)


def builder_of(name: str) -> str:
    """Return what builds a kernel, as `MODULE:CLASS`."""
    return _BUILDERS[name]


def needed_ops(accelerator: str, ds_config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kernels that the engine would compile at start under this ds_config.json."""
    zero = ds_config.get("zero_optimization") or {}
    places = [str((zero.get(key) or {}).get("device", "none")) for key in _OFFLOADED]
    disk = (DISK,) if "nvme" in places else ()
    optimizer = ds_config.get("optimizer") or {}
    is_adam = str(optimizer.get("type", "")).lower() in ("adam", "adamw")
    if accelerator == "cpu" or not is_adam or (optimizer.get("params") or {}).get("torch_adam"):
        return disk  # on a CPU torch's own Adam is rendered, which compiles nothing
    return (("FusedAdam" if places[0] == "none" else "CPUAdam"), *disk)


def build_ops(
    names: tuple[str, ...], environ: Mapping[str, str], is_stopped: Callable[[], bool] = lambda: False
) -> dict[str, str]:
    """Compile kernels in processes of their own; return why, for each that could not be built."""
    failures: dict[str, str] = {}
    for name in names:
        why = ops.build(builder_of(name), environ, _BUILD_SECONDS, is_stopped)
        if is_stopped():
            break
        if why is not None:
            failures[name] = why
    return failures


def stopped(number: int) -> DsforgeError:
    """Return that a signal ended the compiling of kernels, before there was a run."""
    return DsforgeError(
        "DSF825",
        f"stopped by {signal_name(number)} while kernels were compiled: no run was made",
        hint="`dsforge preflight RECIPE --build` compiles them ahead; what was compiled is kept",
        exit_code=ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED,
    )


def no_disk(why: str) -> DsforgeError:
    """Return that what is to lie on a disk cannot be read or written."""
    return DsforgeError("DSF802", f"{NO_DISK}: {why}", hint=LIBAIO, exit_code=ExitCode.ENVIRONMENT)
