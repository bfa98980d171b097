"""Which checkpoint a run goes on from, and the hold on the folder that it saves into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.records import checkpoint_lock
from dsforge.records.checkpoint import (
    MANIFEST_NAME,
    CheckpointManifest,
    FileEntry,
    NotWhole,
    find_damage,
    read_manifest,
    step_folders,
    step_number,
)
from dsforge.train.checkpoint import sweep
from dsforge.train.context import RankContext
from dsforge.train.fits import DataFacts, check_fits, not_whole
from dsforge.train.sharing import share_of
from dsforge.train.world import from_rank_0

Choice = tuple[Path, CheckpointManifest]


@contextmanager
def claimed(context: RankContext) -> Iterator[None]:
    """Hold the checkpoint folder for this run; every rank must call it, rank 0's error is everybody's."""
    with ExitStack() as held:
        from_rank_0(context.rank, lambda: held.enter_context(locked(context.checkpoint_dir)))
        yield


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a checkpoint folder and clear it of what died half-way; DsforgeError when that cannot be done.

    Two runs that save into one folder would remove each other's files and resume from each other.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(checkpoint_lock.hold(folder))
            sweep(folder)
        except OSError as error:
            raise _unusable(folder, error) from error
        yield


def agree(context: RankContext, data: DataFacts) -> Choice | None:
    """Return the checkpoint to go on from, rank 0's choice, once the ranks have read all of its files.

    Every rank must call it. DsforgeError, on all of them, for what `find` refuses and for a file with
    other bytes than were written.
    """
    choice = from_rank_0(context.rank, lambda: find(context, data))
    if choice is None:
        return None
    folder, manifest = choice
    _check_files(folder, manifest.files, context)
    return choice


def find(context: RankContext, data: DataFacts) -> Choice | None:
    """Return the checkpoint that this attempt goes on from, None for a start at step 0.

    DsforgeError when it is not whole or does not fit, or when the folder holds a newer one than that.
    """
    try:
        folders = step_folders(context.checkpoint_dir)
        choice = _own(context, folders) or _named(context, folders)
    except OSError as error:
        raise _unusable(Path(error.filename or context.checkpoint_dir), error) from error
    if choice is not None:
        check_fits(choice[1], context.plan, data, choice[0])
    start = choice[1].step if choice else 0
    if folders and folders[-1][0] > start:
        raise DsforgeError(
            "DSF335",
            f"holds a checkpoint of step {folders[-1][0]}, and this run starts after step {start}",
            Place(file=str(context.checkpoint_dir)),
            "move the newer checkpoints away or name another checkpoint.dir: two runs would be mixed",
            ExitCode.BEFORE_FIRST_STEP,
        )
    return choice


def _own(context: RankContext, folders: list[tuple[int, Path]]) -> Choice | None:
    """Return what this run has saved itself, for any attempt but the first."""
    if context.attempt_number == 1 or not context.run_id or not folders:
        return None
    # Nothing newer than its own can be there: the first attempt looked, and the folder has been held since.
    folder, manifest = _whole(folders[-1][1])
    return (folder, manifest) if manifest.run_id == context.run_id else None


def _named(context: RankContext, folders: list[tuple[int, Path]]) -> Choice | None:
    """Return what `checkpoint.resume` asks for; OSError when a folder of checkpoints cannot be listed."""
    resume = context.plan.checkpoint.resume
    if resume == "never":
        return None
    if resume == "auto":
        return _whole(folders[-1][1]) if folders else None
    named = context.root / resume
    if step_number(named) is None and not (named / MANIFEST_NAME).exists():
        inside = step_folders(named)
        if not inside:
            raise DsforgeError(
                "DSF334",
                "no checkpoint here",
                Place(file=str(named)),
                "checkpoint.resume names a step folder, or a folder of them",
                ExitCode.BEFORE_FIRST_STEP,
            )
        named = inside[-1][1]
    return _whole(named)


def _whole(folder: Path) -> Choice:
    manifest = read_manifest(folder)
    if isinstance(manifest, NotWhole):
        raise not_whole(folder, manifest)
    return folder, manifest


def _check_files(folder: Path, files: dict[str, FileEntry], context: RankContext) -> None:
    sizes = {name: entry.size_bytes for name, entry in files.items()}
    mine = share_of(sizes, context.rank, context.world_size)
    faults = [fault for name in mine if (fault := find_damage(folder / name, files[name])) is not None]
    gathered: list[Any] = [None] * context.world_size
    dist.all_gather_object(gathered, faults)
    found = sorted((fault for some in gathered for fault in some), key=lambda fault: str(fault.file))
    if found:
        raise not_whole(folder, found[0])


def _unusable(folder: Path, error: OSError) -> DsforgeError:
    return DsforgeError(
        "DSF339",
        f"checkpoints cannot be kept here: {os.strerror(error.errno) if error.errno else error}",
        Place(file=str(folder)),
        "name a folder that you may write to as checkpoint.dir",
        ExitCode.ENVIRONMENT,
    )
