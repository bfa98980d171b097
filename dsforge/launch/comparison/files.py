"""DSF260 to DSF263, DSF803: folders that all hosts share, each host's own disk, and files equal on all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dsforge.base import shell
from dsforge.base.errors import Finding
from dsforge.base.units import format_bytes
from dsforge.launch.comparison.known import Known, fault
from dsforge.launch.offloading import PATH_HINT
from dsforge.records.probe import Folder


def check(known: Known) -> Iterator[Finding]:
    """Yield folders that are other ones there, cannot be written or are full, and files that differ."""
    here = {mark.path: mark for mark in known.here.files}
    for host, facts in known.answered():
        for folder in facts.folders:
            yield from _folder(known, host, folder)
        if facts.disk_refused is not None:
            yield fault(
                "DSF803", host, f"nothing can be offloaded to its disk: {facts.disk_refused}", PATH_HINT
            )
        for mark in facts.files:
            own = here[mark.path]
            if own.size_bytes is None or mark == own:
                continue
            if mark.size_bytes is None:
                hint = f"put {Path(mark.path).parent} on a file system that all hosts share, or copy it there"
                yield fault("DSF262", host, f"{mark.path} cannot be read there", hint)
            else:
                copy = shell.join(["scp", "--", mark.path, f"{host}:{mark.path}"])
                sizes = f"{mark.size_bytes} bytes there, {own.size_bytes} here"
                yield fault("DSF262", host, f"{mark.path} is another file there ({sizes})", f"`{copy}`")


def _folder(known: Known, host: str, folder: Folder) -> Iterator[Finding]:
    needed = known.room.get(folder.path, 0)
    if folder.token != known.tokens[folder.path]:
        is_there = folder.refused is None or folder.free_bytes or folder.free_files is not None
        what = "is another folder there: what is written here is not read" if is_there else "is not there"
        yield fault(
            "DSF260",
            host,
            f"{folder.path} {what}",
            "name a folder on a file system that all hosts share: --runs, checkpoint.dir",
        )
        if not is_there:
            return
    if folder.free_bytes < needed or folder.free_files == 0:
        left = "no more files" if folder.free_bytes >= needed else f"{format_bytes(folder.free_bytes)} left"
        yield fault(
            "DSF263",
            host,
            f"{folder.path} has {left}, the run writes {format_bytes(needed)}",
            f"free space there (`df -h {shell.quote(folder.path)}`), or name another folder",
        )
    elif folder.refused is not None:
        yield fault(
            "DSF261",
            host,
            f"{folder.path} cannot be written there: {folder.refused}",
            f"give the right to write: `ls -ld {shell.quote(folder.path)}` there",
        )
