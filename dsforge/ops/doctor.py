"""`doctor`: what this machine and environment have."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from dsforge.launch.offloading import has_libaio
from dsforge.launch.op_cache import ops_dir

_PACKAGES = (
    "dsforge",
    "torch",
    "deepspeed",
    "megatron-core",
    "transformers",
    "tokenizers",
    "numpy",
    "pydantic",
)
_COMPILERS = ("gcc", "g++", "nvcc", "ninja")
_LAUNCHERS = ("deepspeed", "torchrun", "pdsh", "mpirun", "srun", "ssh", "kubectl", "qsub")
_TESTED = {"torch": "2.13.0", "deepspeed": "0.19.8", "megatron-core": "0.16.1"}
_TIMEOUT_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Doctor:
    """The environment, ready to be pasted into an issue. `problems` are what keeps a launch from working."""

    python: str
    platform: str
    cpus: int
    memory_bytes: int
    packages: dict[str, str | None]
    accelerator: dict[str, Any]
    compilers: dict[str, str | None]
    op_cache: dict[str, Any]
    launchers: dict[str, str | None]
    problems: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready mapping."""
        return asdict(self)


def examine_machine() -> Doctor:
    """Look at versions, accelerator, compilers, op cache and launchers; starts no torch."""
    packages = {name: _version(name) for name in _PACKAGES}
    launchers = {name: _find(name) for name in _LAUNCHERS}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Doctor(
        python=f"{platform.python_version()} at {sys.executable}",
        platform=platform.platform(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=memory,
        packages=packages,
        accelerator=_accelerator(),
        compilers={name: _first_line(_find(name), "--version") for name in _COMPILERS},
        op_cache=_op_cache(),
        launchers=launchers,
        problems=tuple(_problems(packages, launchers)),
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _find(program: str) -> str | None:
    beside = Path(sys.executable).parent / program
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(program)


def _first_line(program: str | None, *words: str) -> str | None:
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    lines = [line for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    released = [line for line in lines if "release" in line]  # nvcc names its version in the fourth line
    return (released or lines or ["no version"])[0].strip()


def _accelerator() -> dict[str, Any]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return {"kind": "cpu", "devices": [], "why": "nvidia-smi is not installed"}
    query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            [program, *query], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"kind": "cpu", "devices": [], "why": f"nvidia-smi does not run: {error}"}
    devices = (
        [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
    )
    if not devices:
        return {"kind": "cpu", "devices": [], "why": "nvidia-smi finds no GPU"}
    return {"kind": "cuda", "devices": devices, "why": "nvidia-smi"}


def _op_cache() -> dict[str, Any]:
    folder = ops_dir(os.environ)
    built = sorted(path.parent.name for path in folder.glob("*/*.so")) if folder.is_dir() else []
    locks = sorted(str(path) for path in folder.glob("*/lock")) if folder.is_dir() else []
    return {"folder": str(folder), "built": built, "locks": locks, "libaio": has_libaio(os.environ)}


def _problems(packages: dict[str, str | None], launchers: dict[str, str | None]) -> list[str]:
    problems = [
        f"{name} is not installed: pip install 'dsforge[train]'"
        for name in ("torch", "deepspeed", "megatron-core")
        if packages[name] is None
    ]
    for name, tested in _TESTED.items():
        found = packages[name]
        if found is not None and found.split("+")[0] != tested:
            problems.append(f"{name} {found} is not the tested {tested}")
    if packages["deepspeed"] is not None and launchers["deepspeed"] is None:
        problems.append("the deepspeed launcher is not beside this Python")
    return problems
