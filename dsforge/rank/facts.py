"""What a host says of itself before a run: versions, room, limits, files, and what is left of other runs."""

from __future__ import annotations

import hashlib
import os
import platform
import resource
import shutil
import socket
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import dsforge
from dsforge.base import processes
from dsforge.base.files import why_unwritable
from dsforge.base.lease import LeaseWatch
from dsforge.rank import ops
from dsforge.rank.gpus import gpus, xids
from dsforge.rank.interfaces import addresses_of, announced, interface_variables, interfaces, route_to
from dsforge.records import environment
from dsforge.records.probe import Announced, FileMark, Folder, HostFacts, Interface, Leftover, Question

_PACKAGES = ("torch", "deepspeed", "megatron-core", "transformers")
_LIBRARIES = (
    *("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
    *("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"),
)
"""NCCL and CUDA as torch brings them, for CUDA 12 and 13."""
_COMPILERS = ("nvcc", "c++", "ninja")
SHM = "/dev/shm"  # noqa: S108 - asked for its size
_FABRIC = Path("/sys/class/infiniband")
_HASHED_BYTES = 2**20
_ROOM_BYTES = 4096
_LONGEST_TOKEN_BYTES = 256


def host_facts(question: Question) -> HostFacts:
    """Return what this host says of itself; a fact that cannot be had is told as not known."""
    environ = {**os.environ, **question.environ}
    devices, gpu_problem = gpus(environ) if question.gpus else ((), None)
    there = interfaces()
    masters = addresses_of(question.master)
    total, available = _memory()
    return HostFacts(
        host=socket.gethostname(),
        machine=processes.machine(),
        versions=versions(*_LIBRARIES),
        gpus=devices,
        gpu_problem=gpu_problem,
        xids=xids() if devices else (),
        memory_bytes=total,
        available_bytes=available,
        shm_bytes=_free_bytes(SHM),
        open_files=_limit(resource.RLIMIT_NOFILE) or 2**31,
        locked_memory_bytes=_limit(resource.RLIMIT_MEMLOCK),
        has_fabric=_FABRIC.is_dir() and any(_FABRIC.iterdir()),
        folders=tuple(look_at_folder(path, token) for path, token in question.folders.items()),
        files=tuple(mark_of(path) for path in question.files),
        interfaces=there,
        announced=_announced(question, masters, there, environ),
        master_addresses=masters,
        route=route_to(masters[0], there) if masters else None,
        leftovers=leftovers(),
        compilers={name: shutil.which(name, path=environ.get("PATH")) is not None for name in _COMPILERS},
        built_ops=ops.built(Path(question.ops)),
        disk_refused=why_unwritable(Path(question.disk)) if question.disk is not None else None,
    )


def _announced(
    question: Question, masters: tuple[str, ...], there: tuple[Interface, ...], environ: Mapping[str, str]
) -> Announced:
    if question.interface is None:
        return announced(there, environ, gpus=question.gpus)
    found = interface_variables(question.interface, masters, there, gpus=question.gpus)
    if not found:
        return Announced("cluster.interface", question.interface, None, (question.interface,))
    return announced(there, {**found, **environ}, gpus=question.gpus)


def versions(*libraries: str) -> dict[str, str]:
    """Return the versions of python, dsforge, the installed engines and `libraries`."""
    found = {"python": platform.python_version(), "dsforge": dsforge.__version__}
    for package in (*_PACKAGES, *libraries):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def look_at_folder(path: str, token: str) -> Folder:
    """Return what this host sees of a folder; what is written to try it is removed."""
    folder = Path(path)
    try:
        with (folder / token).open("rb") as stream:
            text = stream.read(_LONGEST_TOKEN_BYTES).decode("ascii", "replace")
    except OSError:
        text = None
    refused = None
    try:
        with tempfile.TemporaryFile(dir=folder) as trial:
            trial.write(b"\0" * _ROOM_BYTES)
            trial.flush()
            os.fsync(trial.fileno())
    except OSError as error:
        refused = error.strerror or str(error)
    try:
        room = os.statvfs(folder)
    except OSError:
        return Folder(path, text, refused, 0, None)
    # Some file systems do not count files, and say so by having none in all.
    return Folder(path, text, refused, room.f_bavail * room.f_frsize, room.f_favail if room.f_files else None)


def mark_of(path: str) -> FileMark:
    """Return the mark of a file, which is another one's only if that is equal or differs in its middle."""
    try:
        with Path(path).open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            digest = hashlib.sha256(stream.read(_HASHED_BYTES))
            stream.seek(max(0, size - _HASHED_BYTES))
            digest.update(stream.read(_HASHED_BYTES))
    except OSError:
        return FileMark(path, None, None)
    return FileMark(path, size, digest.hexdigest())


def leftovers() -> tuple[Leftover, ...]:
    """Return the attempts of which processes run here, this process's own left out."""
    own = os.environ.get(environment.ATTEMPT_DIR)
    found: dict[tuple[str, str], list[int]] = {}
    for process in processes.everybody():
        attempt = processes.variable_of(process, environment.ATTEMPT_DIR)
        lease = processes.variable_of(process, environment.LEASE)
        if attempt and lease and attempt != own and processes.is_alive(process):
            found.setdefault((attempt, lease), []).append(process.pid)
    return tuple(
        Leftover(attempt, lease, tuple(sorted(pids)), not LeaseWatch(Path(lease)).is_held())
        for (attempt, lease), pids in sorted(found.items())
    )


def _memory() -> tuple[int, int]:
    """Return all memory and what is left of it, in bytes (proc(5) meminfo)."""
    rows: Mapping[str, str] = {}
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text("ascii").splitlines())
        return tuple(int(rows[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))  # type: ignore[return-value]  # two names
    except (OSError, ValueError, KeyError, IndexError):
        return 0, 0


def _limit(what: int) -> int | None:
    soft, _ = resource.getrlimit(what)
    return None if soft == resource.RLIM_INFINITY else soft


def _free_bytes(path: str) -> int:
    try:
        room = os.statvfs(path)
    except OSError:
        return 0
    return room.f_bavail * room.f_frsize
