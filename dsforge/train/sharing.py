"""Work on a checkpoint's files, dealt out over the ranks: together they read every file once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist

from dsforge.records.checkpoint import MANIFEST_NAME, FileEntry, file_digest


def sizes_of(folder: Path) -> dict[str, int]:
    """Return bytes by relative path of every file under a folder but the manifest."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST_NAME
    }


def share_of(sizes: Mapping[str, int], rank: int, world_size: int) -> list[str]:
    """Return one rank's files of {name: bytes}: largest first, dealt round, so that shares are alike."""
    ordered = sorted(sizes, key=lambda name: (-sizes[name], name))
    return ordered[rank::world_size]


def entries_of(folder: Path) -> dict[str, FileEntry]:
    """Return every file under a folder with its digest; every rank must call it.

    OSError when a file cannot be read or the ranks do not see the same files.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    sizes = sizes_of(folder)
    own = {
        name: FileEntry(sizes[name], file_digest(folder / name)) for name in share_of(sizes, rank, world_size)
    }
    gathered: list[Any] = [None] * world_size
    dist.all_gather_object(gathered, (sizes, own))
    if any(seen != gathered[0][0] for seen, _ in gathered):
        raise OSError("the ranks see different files: the folder is not on a shared file system")
    return {name: entry for _, entries in gathered for name, entry in entries.items()}
