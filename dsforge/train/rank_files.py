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
from dsforge.train.held import held
from dsforge.train.loss_scale import LossScale


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
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    scale: LossScale | None,
) -> LossScale | None:
    """Give a rank back what it held, and return its loss scale; `scale` where the file has none.

    DsforgeError DSF334 for a file that cannot be loaded, or that holds other tensors.
    """
    path = _path(folder, number)
    content = load_file(folder, str(path), "cpu")
    weights, states, kept = _sections(content, parameters, path, folder)
    for name, parameter in parameters.items():
        held(parameter).copy_(weights[name])
        optimizer.state[parameter] = {
            key: _like(parameter, value) for key, value in states.get(name, {}).items()
        }
    return LossScale(**kept) if kept and scale else scale


def _sections(
    content: Any, parameters: Mapping[str, nn.Parameter], path: Path, folder: Path
) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, torch.Tensor]], dict[str, Any] | None]:
    sections = ("weights", "optimizer", "loss_scale")
    if not isinstance(content, dict) or content.keys() != set(sections):
        raise not_whole(folder, NotWhole(path, "is no file of this trainer"))
    weights, states, scale = (content[name] for name in sections)
    for name, parameter in parameters.items():
        if name not in weights or weights[name].shape != held(parameter).shape:
            raise not_whole(folder, NotWhole(path, f"does not hold this rank's part of {name}"))
    return weights, states, scale


def _like(parameter: nn.Parameter, value: torch.Tensor) -> torch.Tensor:
    """Return a state of a parameter, cut as that is; a count of steps is a number of its own."""
    if value.dim() == 0 and parameter.dim() > 0:
        return value.to(held(parameter).device)
    state = torch.zeros_like(parameter, dtype=value.dtype)
    held(state).copy_(value)
    return state


def _path(folder: Path, number: int) -> Path:
    return folder / TAG / f"rank-{number:05d}.pt"
