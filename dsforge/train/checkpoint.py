"""Saves and resumes a run. A checkpoint is whole only once its manifest stands beside its files.

The engines write into `step-N.tmp-ATTEMPT`; every rank flushes the files, rank 0 writes the manifest last and
renames the folder. What dies half-way keeps the temporary name and is swept by the next save.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dsforge.base.canonical import sha256_value
from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.base.files import fsync_directory, write_atomically
from dsforge.base.units import format_bytes
from dsforge.plan.types import Plan
from dsforge.records.checkpoint import (
    MANIFEST_NAME,
    CheckpointManifest,
    ParameterEntry,
    read_manifest,
    step_folder_name,
    whole_checkpoints,
)
from dsforge.train.context import RankContext
from dsforge.train.parameters import model_parameters

TAG = "state"
LOCK_NAME = ".in-use"
_TEMPORARY = ".tmp-"


def layout_facts(plan: Plan) -> dict[str, int]:
    """Return what must be equal for the engine's own files to fit: degrees, ZeRO, stages, precision."""
    layout = plan.layout
    facts = {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "zero": layout.zero}
    facts["bf16"] = int(plan.train.precision == "bf16")
    facts |= {f"layers_of_stage_{stage.stage}": stage.layers for stage in layout.stages}
    return facts


def data_facts(plan: Plan) -> dict[str, str | int]:
    """Return what must be equal for the next sample ids to mean the next samples."""
    source = plan.data.prefix or f"built-in corpus, vocabulary {plan.data.builtin_vocab}"
    return {"corpus": source, "seed": plan.train.seed, "seq_len": plan.batch.seq_len}


def parameter_entries(plan: Plan) -> tuple[ParameterEntry, ...]:
    """Return every parameter of the model for the manifest."""
    return tuple(
        ParameterEntry(spec.name, spec.shape, spec.partition_dim, spec.partition_stride)
        for spec in model_parameters(plan.model)
    )


def sizes_of(folder: Path) -> dict[str, int]:
    """Return bytes by relative path of every file under a folder but the manifest."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST_NAME
    }


def check_fits(manifest: CheckpointManifest, plan: Plan, folder: Path) -> None:
    """Compare a checkpoint with the plan that would go on from it; DsforgeError says what differs."""
    place = Place(file=str(folder))
    planned = layout_facts(plan)
    for fact in sorted(planned.keys() | manifest.layout.keys()):
        if planned.get(fact) != manifest.layout.get(fact):
            message = f"{fact} was {manifest.layout.get(fact)}, the plan says {planned.get(fact)}"
            hint = "resume under the layout that it was saved with, or name another checkpoint.dir"
            raise DsforgeError("DSF331", f"the checkpoint has another layout: {message}", place, hint)
    if manifest.consumed_samples != manifest.step * plan.batch.global_size:
        message = (
            f"the checkpoint has consumed {manifest.consumed_samples} samples in {manifest.step} steps, "
            f"which is not {plan.batch.global_size} a step"
        )
        raise DsforgeError("DSF332", message, place, "keep batch.global: samples would repeat or be left out")
    for fact, value in data_facts(plan).items():
        if manifest.data.get(fact) != value:
            message = f"{fact} was {manifest.data.get(fact)!r}, the plan says {value!r}"
            hint = "keep it: another order of samples would repeat some and leave others out"
            raise DsforgeError("DSF332", f"the checkpoint has consumed other samples: {message}", place, hint)
    saved = {entry.name: entry for entry in manifest.parameters}
    for entry in parameter_entries(plan):
        if saved.get(entry.name) != entry:
            message = f"the checkpoint is of another model: {entry.name} differs"
            raise DsforgeError(
                "DSF333",
                message,
                place,
                "name another checkpoint.dir, or resume with the model it was saved from",
            )


def find(context: RankContext) -> tuple[Path, CheckpointManifest] | None:
    """Return the whole checkpoint that the plan resumes from; DsforgeError if the named one is not whole."""
    choice = _chosen(context)
    start = choice[1].step if choice else 0
    newer = [step for step, _ in whole_checkpoints(context.checkpoint_dir) if step > start]
    if newer:
        raise DsforgeError(
            "DSF335",
            f"holds a checkpoint of step {newer[-1]}, and this run starts after step {start}",
            Place(file=str(context.checkpoint_dir)),
            "move the newer checkpoints away or name another checkpoint.dir: two runs would be mixed",
            ExitCode.BEFORE_FIRST_STEP,
        )
    return choice


def _chosen(context: RankContext) -> tuple[Path, CheckpointManifest] | None:
    resume = context.plan.checkpoint.resume
    if resume == "never":
        return None
    if resume == "auto":
        folder = _newest(context.checkpoint_dir)
    else:
        named = context.root / resume
        folder = named if (named / MANIFEST_NAME).exists() else _newest(named)
        if folder is None:
            raise DsforgeError(
                "DSF334",
                "no whole checkpoint here",
                Place(file=str(named)),
                "checkpoint.resume names a step folder, or a folder of them",
                ExitCode.BEFORE_FIRST_STEP,
            )
    if folder is None:
        return None
    manifest = read_manifest(folder)
    if manifest is None:
        raise DsforgeError(
            "DSF334",
            "the checkpoint is not whole: a file is missing or its size differs from the manifest",
            Place(file=str(folder)),
            "name another checkpoint, or resume: auto for the newest whole one",
            ExitCode.BEFORE_FIRST_STEP,
        )
    check_fits(manifest, context.plan, folder)
    return folder, manifest


def _newest(root: Path) -> Path | None:
    whole = whole_checkpoints(root)
    return whole[-1][1] if whole else None


@contextmanager
def claimed(context: RankContext) -> Iterator[None]:
    """Hold the checkpoint folder for this run; DsforgeError if another run of any host holds it.

    Two runs that save into one folder would remove each other's files and resume from each other.
    """
    folder = context.checkpoint_dir
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_NAME).open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DsforgeError(
                "DSF336",
                "another run saves its checkpoints here",
                Place(file=str(folder)),
                "wait for it, stop it, or name another checkpoint.dir",
                ExitCode.BEFORE_FIRST_STEP,
            ) from None
        yield


def agree(context: RankContext) -> tuple[Path, int] | None:
    """Return (folder, step) to resume from, rank 0's choice on every rank; its error is everybody's."""
    answer: list[Any] = [None]
    if context.rank == 0:
        try:
            choice = find(context)
            answer[0] = None if choice is None else (str(choice[0]), choice[1].step)
        except DsforgeError as error:
            answer[0] = error
    dist.broadcast_object_list(answer, src=0)
    if isinstance(answer[0], DsforgeError):
        raise answer[0]
    return None if answer[0] is None else (Path(answer[0][0]), answer[0][1])


def save(engine: Any, context: RankContext, step: int) -> Path:
    """Write a whole checkpoint after `step` steps and return its folder; every rank must call it."""
    final = context.checkpoint_dir / step_folder_name(step)
    temporary = final.with_name(f"{final.name}{_TEMPORARY}{context.attempt.path.name}")
    try:
        if context.rank == 0:
            _sweep(context.checkpoint_dir)
            temporary.mkdir(parents=True)
        dist.barrier()
        make_loadable_without_code()
        engine.deepspeed.save_checkpoint(str(temporary), tag=TAG, save_latest=False)
        _flush(temporary)
        files = _common_files(temporary)
        if context.rank == 0:
            _finish(temporary, final, context.plan, step, files)
            prune(context.checkpoint_dir, context.plan.checkpoint.keep)
        dist.barrier()
    except (OSError, RuntimeError) as error:
        raise DsforgeError(
            "DSF330",
            f"the checkpoint of step {step} could not be written: {_reason(error, context.checkpoint_dir)}",
            Place(file=str(temporary), host=socket.gethostname(), rank=context.rank),
            "free space or name another checkpoint.dir; the whole checkpoints before it are untouched",
            ExitCode.ENVIRONMENT,
        ) from error
    return final


def _reason(error: BaseException, folder: Path) -> str:
    """Return an error's first line and the room that is left: PyTorch hides that a disk is full."""
    first_line = str(error).strip().partition("\n")[0]
    return f"{first_line}; {format_bytes(shutil.disk_usage(folder).free)} are free there"


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


def _common_files(folder: Path) -> dict[str, int]:
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, sizes_of(folder))
    if any(seen != gathered[0] for seen in gathered):
        raise OSError("the ranks see different files: the folder is not on a shared file system")
    return gathered[0]


def _finish(temporary: Path, final: Path, plan: Plan, step: int, files: dict[str, int]) -> None:
    manifest = CheckpointManifest(
        step=step,
        consumed_samples=step * plan.batch.global_size,
        trainer=plan.trainer,
        layout=layout_facts(plan),
        data=data_facts(plan),
        plan_sha256=sha256_value(plan.to_json_value()),
        files=files,
        parameters=parameter_entries(plan),
    )
    write_atomically(temporary / MANIFEST_NAME, manifest.to_json())
    if final.exists():
        final.rename(final.with_name(f"{final.name}{_TEMPORARY}replaced"))
    temporary.rename(final)
    fsync_directory(final.parent)


def _sweep(root: Path) -> None:
    for folder in root.glob(f"step-*{_TEMPORARY}*"):
        shutil.rmtree(folder)


def prune(root: Path, keep: int) -> None:
    """Remove what died half-way and all but the newest `keep` whole checkpoints; 0 keeps all."""
    _sweep(root)
    whole = whole_checkpoints(root)
    for _, folder in whole[: max(0, len(whole) - keep)] if keep else ():
        # Renamed first: half a removal must not look whole.
        doomed = folder.with_name(f"{folder.name}{_TEMPORARY}pruned")
        folder.rename(doomed)
        shutil.rmtree(doomed)


def _reduce_by_value(member: Enum, _protocol: int) -> tuple[type[Enum], tuple[Any]]:
    return type(member), (member.value,)


def make_loadable_without_code() -> None:
    """Keep the engine's enum from being pickled as a call of `getattr`, as Python before 3.11.4 does.

    Files are loaded with `weights_only`, which rightly refuses that call.
    """
    from deepspeed.runtime.zero.config import ZeroStageEnum

    ZeroStageEnum.__reduce_ex__ = _reduce_by_value


def restore(engine: Any, folder: Path) -> None:
    """Load the engine's files of a whole checkpoint, no code in them; every rank must call it."""
    from deepspeed.runtime.fp16.loss_scaler import LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    # The engine itself would unpickle whatever stands in the files.
    engine.deepspeed.checkpoint_engine.load = partial(torch.load, weights_only=True)
    with torch.serialization.safe_globals([LossScaler, ZeroStageEnum, fragment_address]):
        loaded, _ = engine.deepspeed.load_checkpoint(str(folder), tag=TAG)
    assert loaded is not None, f"deepspeed found nothing in {folder}"
