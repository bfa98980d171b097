"""Finds the first module whose output is not finite, in the order in which a rank computes.

Every module with weights of its own is looked at, without waiting for the device: each output leaves one
number there, and the smallest is read once something is known to be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from dsforge.train.held import Piece

_NONE = 2**62


@dataclass(frozen=True, slots=True, order=True)
class Sight:
    """Where something was first seen that is not finite: micro-batch, counted from 0, and module."""

    micro: int
    call: int
    module: str


class ModuleWatch:
    """Hooks on the modules of a rank; `begin` before each step."""

    def __init__(
        self, modules: Sequence[nn.Module], parameters: Mapping[str, nn.Parameter], device: torch.device
    ) -> None:
        """Take what is called once a micro-batch, and all parameters by the names to tell modules by."""
        names = {id(parameter): name for name, parameter in parameters.items()}
        self._calls: list[tuple[int, str]] = []
        self._micros = [0] * len(modules)
        self._first = torch.full((), _NONE, dtype=torch.int64, device=device)
        self._gradients: tuple[list[str], torch.Tensor] | None = None
        for number, root in enumerate(modules):
            root.register_forward_pre_hook(partial(self._count, number))
            for module, name in _with_weights(root, names):
                module.register_forward_hook(partial(self._look, number, name))

    def begin(self) -> None:
        """Forget the step before."""
        self._calls.clear()
        self._micros = [0] * len(self._micros)
        self._first.fill_(_NONE)
        self._gradients = None

    def first(self) -> Sight | None:
        """Return what was first seen in this step; None for nothing."""
        call = int(self._first)
        return None if call == _NONE else Sight(self._calls[call][0], call, self._calls[call][1])

    def look_at_gradients(self, pieces: Mapping[str, Piece]) -> None:
        """Take note of the gradients of a step, reduced, without waiting for the device."""
        self._gradients = list(pieces), torch.stack([one.values.isfinite().all() for one in pieces.values()])

    def last_gradient(self) -> str | None:
        """Return the parameter nearest to the loss whose gradient is not finite: backward met it first."""
        if self._gradients is None:
            return None
        names, finite = self._gradients
        lost = [name for name, is_finite in zip(names, finite.tolist(), strict=True) if not is_finite]
        return lost[-1] if lost else None

    def _count(self, number: int, *_: Any) -> None:
        self._micros[number] += 1

    @torch.no_grad()
    def _look(self, number: int, name: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
        value = output[0] if isinstance(output, tuple) else output
        seen = torch.where(value.isfinite().all(), _NONE, len(self._calls))
        torch.minimum(self._first, seen, out=self._first)
        self._calls.append((self._micros[number] - 1, name))


def _with_weights(root: nn.Module, names: Mapping[int, str]) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules that hold parameters themselves, by the parameters' name without its last word."""
    for module in root.modules():
        own = [names[id(one)] for one in module.parameters(recurse=False) if id(one) in names]
        if own:
            yield module, own[0].rpartition(".")[0]
