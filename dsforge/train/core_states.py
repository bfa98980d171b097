"""A rank's file of a checkpoint under megatron-core: its weights, and what its optimizer keeps of them.

An optimizer of megatron-core's is PyTorch's over master weights, or over this rank's shard of them; both are
saved as PyTorch's optimizer holds them, in its order, so that one format serves all kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from dsforge.records.checkpoint import NotWhole
from dsforge.train.checkpoint import TAG, load_file
from dsforge.train.fits import not_whole
from dsforge.train.loss_scale import LossScale


def file_of(folder: Path, rank: int) -> Path:
    """Return a rank's file."""
    return folder / TAG / f"rank-{rank:05d}.pt"


def save_states(
    path: Path,
    parameters: Mapping[str, nn.Parameter],
    optimizers: Iterable[torch.optim.Optimizer],
    steps_done: int,
    scale: LossScale | None,
) -> None:
    """Write a rank's file; OSError or RuntimeError when it cannot be written."""
    path.parent.mkdir(exist_ok=True)
    weights = {name: _plain(parameter) for name, parameter in parameters.items()}
    masters = [
        (_plain(master), {name: _plain(state) for name, state in states.items()})
        for master, states in _masters(optimizers)
    ]
    kept = {"loss_scale": asdict(scale)} if scale else {}
    torch.save({"steps": steps_done, "weights": weights, "masters": masters, **kept}, path)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    # A view would take all of its storage into the file.
    return tensor.detach().to("cpu", copy=True).contiguous()


@torch.no_grad()
def load_states(
    path: Path,
    parameters: Mapping[str, nn.Parameter],
    optimizers: Iterable[torch.optim.Optimizer],
    scale: LossScale | None,
) -> tuple[int, LossScale | None]:
    """Load a rank's file and return the steps that were done, and the loss scale where there is one.

    DsforgeError DSF334 when it does not fit.
    """
    kept = load_file(path.parent, str(path), map_location="cpu")
    masters = list(_masters(optimizers))
    try:
        weights, saved, steps = kept["weights"], kept["masters"], int(kept["steps"])
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
        for (master, states), (values, held) in zip(masters, saved, strict=True):
            master.copy_(values)
            states.update({name: state.to(_device_of(name, master)) for name, state in held.items()})
        return steps, LossScale(**kept["loss_scale"]) if scale else None
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = f"holds other tensors than this layout has ({type(error).__name__})"
        raise not_whole(path.parent, NotWhole(path, reason)) from None


def _masters(
    optimizers: Iterable[torch.optim.Optimizer],
) -> Iterator[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
    """Yield what is updated, in order, with its states, which are filled at the first step."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for master in group["params"]:
                yield master, optimizer.state[master]


def _device_of(state: str, master: torch.Tensor) -> torch.device:
    """Return where a state belongs: beside what is updated, but the count of steps on the CPU."""
    return torch.device("cpu") if state == "step" else master.device
