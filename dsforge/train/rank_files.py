"""A rank's weights, optimizer states and loss scale in one file of a checkpoint, plain tensors by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dsforge.records.checkpoint import NotWhole
from dsforge.train.checkpoint import TAG, load_file
from dsforge.train.fits import not_whole
from dsforge.train.held import cut, held
from dsforge.train.loss_scale import LossScale

Written = list[torch.Tensor | None]
"""A tensor as each file has it, in the order of ranks."""


def save(
    folder: Path,
    number: int,
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    scale: LossScale | None,
) -> None:
    """Write what this rank holds; OSError or RuntimeError when it cannot be written."""
    path = _path(folder, number)
    path.parent.mkdir(exist_ok=True)
    content = {
        "weights": {name: _plain(held(parameter)) for name, parameter in parameters.items()},
        "optimizer": {
            name: {key: _plain(held(value)) for key, value in optimizer.state[parameter].items()}
            for name, parameter in parameters.items()
            if parameter in optimizer.state
        },
        "loss_scale": asdict(scale) if scale else None,
    }
    torch.save(content, path)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    # A view would take all of its storage into the file.
    return tensor.detach().to("cpu", copy=True).contiguous()


@torch.no_grad()
def load(
    folder: Path,
    number: int,
    holders: int,
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    scale: LossScale | None,
) -> LossScale | None:
    """Give a rank back what it held, and return its loss scale; `scale` where the file has none.

    Where another number of ranks than these `holders` wrote a file each, all of them are joined, one tensor
    at a time, and cut anew. DsforgeError DSF334 for files that cannot be loaded, or hold other tensors.
    """
    own = _path(folder, number)
    written = sorted(own.parent.glob("rank-*.pt"))
    is_own = len(written) in (0, holders)
    paths = [own] if is_own else written
    contents = [_sections(folder, path, as_read=not is_own) for path in paths]
    find = _own_part if is_own else _new_part
    for name, parameter in parameters.items():
        states = [content["optimizer"].get(name, {}) for content in contents]
        weight = find(parameter, [content["weights"].get(name) for content in contents])
        parts = {key: find(parameter, [state.get(key) for state in states]) for key in states[0]}
        if weight is None or any(part is None for part in parts.values()):
            raise not_whole(folder, NotWhole(paths[0], f"does not hold this rank's part of {name}"))
        held(parameter).copy_(weight)
        optimizer.state[parameter] = {key: _like(parameter, part) for key, part in parts.items()}
    kept = contents[0]["loss_scale"]
    return LossScale(**kept) if kept and scale else scale


def _sections(folder: Path, path: Path, *, as_read: bool) -> dict[str, Any]:
    content = load_file(folder, str(path), "cpu", as_read=as_read)
    if not isinstance(content, dict) or content.keys() != {"weights", "optimizer", "loss_scale"}:
        raise not_whole(folder, NotWhole(path, "is no file of this trainer"))
    return content


def _own_part(parameter: nn.Parameter, written: Written) -> torch.Tensor | None:
    """Return what this rank itself wrote of a tensor; None if it is not its part of the parameter."""
    (part,) = written
    is_count = part is not None and part.dim() == 0
    return part if part is not None and (is_count or part.shape == held(parameter).shape) else None


def _new_part(parameter: nn.Parameter, written: Written) -> torch.Tensor | None:
    """Return this rank's part of what other ranks wrote of a tensor; None if that is not the whole of it."""
    parts = [part for part in written if part is not None and (part.numel() or not part.dim())]
    if parts and parts[0].dim() == 0:
        return parts[0]
    if not parts or any(part.shape[1:] != parameter.shape[1:] for part in parts):
        return None
    whole = torch.cat(parts)
    return cut(parameter, whole) if whole.shape == parameter.shape else None


def _like(parameter: nn.Parameter, value: torch.Tensor) -> torch.Tensor:
    """Return a state of a parameter, cut as that is; a count of steps is a number of its own."""
    if value.dim() == 0:
        return value.to(held(parameter).device)
    state = torch.zeros_like(parameter, dtype=value.dtype)
    held(state).copy_(value)
    return state


def _path(folder: Path, number: int) -> Path:
    return folder / TAG / f"rank-{number:05d}.pt"
