"""States on a disk: a folder of the run's own under `offload.path`, and what a checkpoint keeps of them.

DeepSpeed copies the files that it swaps by, and forgets what is too small to be swapped and the number of
steps. So a checkpoint holds a file a rank and group of parameters: fp32 weights and the optimizer's states,
with the loss scale in fp16.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from dsforge.base.errors import DsforgeError, Place
from dsforge.base.exits import ExitCode
from dsforge.records.checkpoint import NotWhole
from dsforge.train.checkpoint import TAG, load_file
from dsforge.train.context import RankContext
from dsforge.train.fits import not_whole


@contextlib.contextmanager
def used(context: RankContext) -> Iterator[None]:
    """Have the run's folder on the disk, and give up this rank's part of it at the end."""
    folder = context.disk
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DsforgeError(
            "DSF804",
            f"nothing can be offloaded to the disk: {error.strerror}",
            Place(file=str(folder), host=socket.gethostname(), rank=context.rank),
            "name another offload.path: a folder on a disk of every host",
            ExitCode.ENVIRONMENT,
        ) from error
    try:
        yield
    finally:
        for part in parts(folder, context.rank):
            shutil.rmtree(part, ignore_errors=True)
        for empty in (*sorted(folder.glob("*/*"), reverse=True), *folder.glob("*"), folder):
            with contextlib.suppress(OSError):  # another rank's lie there still
                empty.rmdir()


def parts(folder: Path, rank: int) -> list[Path]:
    """Return the folders in which the engine swaps a rank's states."""
    return sorted(folder.glob(f"zero_stage_3/*/rank{rank}"))


def swapped_bytes(context: RankContext) -> int:
    """Return the bytes that a rank has on the disk."""
    if context.disk is None:
        return 0
    files = (file for part in parts(context.disk, context.rank) for file in part.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file())


def save(folder: Path, number: int, optimizer: Any) -> None:
    """Write what a rank's optimizer has on the disk; OSError or RuntimeError when it cannot be written."""
    for group, weights in _groups(optimizer):
        states = {
            key: value.clone() if torch.is_tensor(value) else value
            for key, value in optimizer.optimizer.state[weights].items()
        }
        path = _path(folder, number, group)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"weights": weights.detach().clone(), "states": states, **_scale(optimizer)}
        torch.save(content, path)


@torch.no_grad()
def load(folder: Path, number: int, optimizer: Any) -> None:
    """Give a rank's optimizer back what it had on the disk, and the model its weights.

    DsforgeError DSF334 for a file that cannot be loaded, or that holds other tensors.
    """
    for group, weights in _groups(optimizer):
        path = _path(folder, number, group)
        content = load_file(folder, str(path), "cpu")
        if (
            not isinstance(content, dict)
            or content.keys() != {"weights", "states", *_scale(optimizer)}
            or content["weights"].shape != weights.shape
        ):
            raise not_whole(folder, NotWhole(path, "does not hold this rank's states"))
        weights.copy_(content["weights"])
        optimizer.optimizer.state[weights] = content["states"]
        optimizer._reassign_or_swap_out_partitioned_parameters(group)
        vars(optimizer.loss_scaler).update(content.get("loss_scale", {}))


def _scale(optimizer: Any) -> dict[str, dict[str, Any]]:
    return {"loss_scale": vars(optimizer.loss_scaler)} if optimizer.dynamic_loss_scale else {}


def _groups(optimizer: Any) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield a ZeRO-3 optimizer's groups and their fp32 weights, in memory together with their states."""
    for group in range(len(optimizer.fp16_groups)):
        optimizer._prepare_sub_group(group, set())
        yield group, optimizer.fp32_partitioned_groups_flat[group]
        optimizer._release_sub_group(group, set())


def _path(folder: Path, number: int, group: int) -> Path:
    return folder / TAG / f"offloaded-{number:05d}-{group:03d}.pt"
