"""Saves and restores a run. A checkpoint is whole only once its manifest stands beside its files.

The engines write into `step-N.tmp-RUN-ATTEMPT`; every rank flushes the files, rank 0 writes the manifest last
and renames the folder. What dies half-way keeps the temporary name and is swept by the next run or save.
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import struct
import zipfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dsforge.base.canonical import sha256_value
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.files import fsync_directory, write_atomically
from dsforge.base.units import format_bytes
from dsforge.records.checkpoint import (
    MANIFEST_NAME,
    CheckpointManifest,
    FileEntry,
    NotWhole,
    step_folder_name,
    whole_checkpoints,
)
from dsforge.train.context import RankContext
from dsforge.train.engine_protocol import Engine
from dsforge.train.fits import DataFacts, layout_facts, model_facts, not_whole, parameter_entries
from dsforge.train.sharing import entries_of
from dsforge.train.world import from_rank_0

TAG = "state"
_TEMPORARY = ".tmp-"
_BY_HAND = "by-hand"
_UNLOADABLE = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError),
    *(TypeError, ValueError, pickle.UnpicklingError, struct.error, zipfile.BadZipFile),
)
"""What unpickling raises for other bytes than it wrote."""


def save(engine: Engine, context: RankContext, step: int, data: DataFacts) -> Path:
    """Write a whole checkpoint after `step` steps and return its folder; every rank must call it.

    DsforgeError when it cannot be written, or when a folder of that step stands there already.
    """
    final = context.checkpoint_dir / step_folder_name(step)
    run = context.run_id or _BY_HAND
    temporary = final.with_name(f"{final.name}{_TEMPORARY}{run}-{context.attempt.path.name}")
    try:
        from_rank_0(context.rank, lambda: _prepare(temporary, final, context))
        engine.save_files(temporary)
        _flush(temporary)
        # Nobody may look at the folder before everybody has written.
        dist.barrier()
        files = entries_of(temporary)
        if context.rank == 0:
            _finish(temporary, final, manifest_of(context, step, data, files))
            prune(context.checkpoint_dir, context.plan.checkpoint.keep)
        dist.barrier()
    except (OSError, RuntimeError) as error:
        raise _not_written(temporary, step, context, error) from error
    return final


def manifest_of(
    context: RankContext, step: int, data: DataFacts, files: dict[str, FileEntry]
) -> CheckpointManifest:
    """Return what stands beside the files of a checkpoint after `step` steps."""
    plan = context.plan
    return CheckpointManifest(
        step=step,
        consumed_samples=step * plan.batch.global_size,
        run_id=context.run_id,
        trainer=plan.trainer,
        layout=layout_facts(plan),
        data=dict(data),
        plan_sha256=sha256_value(plan.to_json_value()),
        files=files,
        parameters=parameter_entries(plan),
        model=model_facts(plan),
    )


def _prepare(temporary: Path, final: Path, context: RankContext) -> None:
    refuse_to_replace(final)
    try:
        sweep(final.parent)
        temporary.mkdir(parents=True)
    except OSError as error:
        raise _not_written(temporary, int(final.name.rpartition("-")[2]), context, error) from error


def refuse_to_replace(final: Path) -> None:
    """Raise DsforgeError DSF338 when a folder of this name stands there: it is not this attempt's."""
    if final.exists() or final.is_symlink():
        raise DsforgeError(
            "DSF338",
            f"{final.name} stands there already, and this attempt did not write it",
            Place(file=str(final)),
            "move it away, or name another checkpoint.dir",
            ExitCode.ENVIRONMENT,
        )


def _not_written(folder: Path, step: int, context: RankContext, error: Exception) -> DsforgeError:
    return DsforgeError(
        "DSF330",
        f"the checkpoint of step {step} could not be written: {_reason(error, context.checkpoint_dir)}",
        Place(file=str(folder), host=socket.gethostname(), rank=context.rank),
        "free space or name another checkpoint.dir; the whole checkpoints before it are untouched",
        ExitCode.ENVIRONMENT,
    )


def _reason(error: BaseException, folder: Path) -> str:
    """Return an error's first line and the room that is left: PyTorch hides that a disk is full."""
    first_line = str(error).strip().partition("\n")[0]
    try:
        return f"{first_line}; {format_bytes(shutil.disk_usage(folder).free)} are free there"
    except OSError:
        return first_line


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        elif path.is_dir():
            fsync_directory(path)
    fsync_directory(folder)


def _finish(temporary: Path, final: Path, manifest: CheckpointManifest) -> None:
    write_atomically(temporary / MANIFEST_NAME, manifest.to_json())
    refuse_to_replace(final)
    temporary.rename(final)
    fsync_directory(final.parent)


def sweep(root: Path) -> None:
    """Remove what saves and removals left half-way; call it only while the folder is held. OSError."""
    for left in root.glob(f"step-*{_TEMPORARY}*"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()


def prune(root: Path, keep: int) -> None:
    """Remove what died half-way and all but the newest `keep` whole checkpoints; 0 keeps all. OSError."""
    sweep(root)
    whole = whole_checkpoints(root)
    for _, folder in whole[: max(0, len(whole) - keep)] if keep else ():
        # Renamed first: half a removal must not look whole.
        doomed = folder.with_name(f"{folder.name}{_TEMPORARY}pruned")
        folder.rename(doomed)
        shutil.rmtree(doomed)


def load_file(folder: Path, path: str, map_location: Any = None, *, as_read: bool = False) -> Any:
    """Return what a file of a checkpoint holds, running no code in it; DsforgeError when it cannot be loaded.

    `as_read`: a tensor is read when it is used, for files of which most is not.
    PyTorch's own words are kept back: they advise to run whatever stands in the file.
    """
    try:
        return torch.load(path, map_location=map_location, weights_only=True, mmap=as_read)
    except torch.OutOfMemoryError:
        raise
    except _UNLOADABLE as error:
        reason = f"does not hold tensors and plain values as they were written ({type(error).__name__})"
        raise not_whole(folder, NotWhole(Path(path), reason)) from None
