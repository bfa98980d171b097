"""Makes the CPU the device of a program that asks for CUDA, where PyTorch has none.

A flavour's data file says which names get a stand-in, and what each does; what it does not name stays.
Whatever computes still computes: a tensor asked for on CUDA lies on the CPU, whose generator is the device's.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Self

_TOLD = "DSFORGE_STAND_INS_TOLD"
_RANK, _RANKS = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class _Order:
    """A stream, an event or the block that one is current in: on a CPU all runs in order."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


def install(stand_ins: Mapping[str, str]) -> None:
    """Put the stand-ins in place, by name what each does; ValueError for a deed that is not known."""
    import torch

    if torch.cuda.is_available():
        return
    for name, deed in stand_ins.items():
        owner, _, last = name.rpartition(".")
        first, *inner = owner.split(".")
        place = functools.reduce(getattr, inner, sys.modules[first])
        setattr(place, last, _stand_in(deed, getattr(place, last, None)))
    if _TOLD not in os.environ:  # a process that the program starts need not tell again
        os.environ[_TOLD] = "1"
        sys.stderr.write(f"dsforge: the CPU is the device; stand-ins serve {', '.join(stand_ins)}\n")


def _stand_in(deed: str, original: Any) -> Any:
    import torch

    answers = {"nothing": None, "yes": True, "zero": 0, "rank": _RANK, "ranks": _RANKS}
    if deed in answers:
        return lambda *_arguments, **_options: answers[deed]
    if deed.startswith("torch."):
        found = getattr(torch, deed.removeprefix("torch."))
        return found if isinstance(found, type) else _without_device(found)
    made: dict[str, Callable[[], Any]] = {
        "on_cpu": lambda: _on_cpu(original),
        "itself": lambda: lambda self, *_arguments, **_options: self,
        "cuda_name": lambda: _cuda_name(original),
        "order": lambda: _Order,
        "at_once": lambda: lambda call, **_options: call(),
        "generators": lambda: (torch.default_generator,) * _RANKS,
        "properties": lambda: (
            lambda *_device: SimpleNamespace(
                name="cpu", major=0, minor=0, total_memory=0, multi_processor_count=1
            )
        ),
        "plain": lambda: _plain,
        "into_weights": lambda: _into_weights(original),
        "own_states": lambda: _with_states(original),
    }
    if deed not in made:
        raise ValueError(f"no stand-in does `{deed}`")
    return made[deed]()


def _nothing(*_arguments: object, **_options: object) -> None:
    pass


def _plain(function: Any = None, **_options: object) -> Any:
    """Return a decorated function as it is, also where the decorator takes options."""
    return _plain if function is None else function


def _without_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the CPU's function for one of the same name that takes a device besides."""
    count = len(inspect.signature(function).parameters)
    return lambda *arguments, **_options: function(*arguments[:count])


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes the CPU for a CUDA device, an index included where it must be one."""
    import torch

    def is_cuda(value: Any) -> bool:
        if isinstance(value, torch.device):
            return bool(value.type == "cuda")
        return isinstance(value, str) and value.partition(":")[0] == "cuda"

    def is_index(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    moves = function.__name__ == "to"

    @functools.wraps(function)
    def on_cpu(*arguments: Any, **options: Any) -> Any:
        if moves and len(arguments) > 1 and is_index(arguments[1]):
            arguments = (arguments[0], "cpu", *arguments[2:])
        arguments = tuple("cpu" if is_cuda(value) else value for value in arguments)
        if is_cuda(device := options.get("device")) or is_index(device):
            options["device"] = "cpu"
        return function(*arguments, **options)

    return on_cpu


def _cuda_name(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Tensor.type`, which names CUDA's class of a tensor."""

    @functools.wraps(function)
    def cuda_name(self: Any, *arguments: Any, **options: Any) -> Any:
        found = function(self, *arguments, **options)
        return found.replace("torch.", "torch.cuda.", 1) if isinstance(found, str) else found

    return cuda_name


def _into_weights(copy: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Tensor.copy_`, which also fills a part of a weight, where PyTorch raises outside `no_grad`."""
    import torch

    @functools.wraps(copy)
    def copy_(self: Any, *arguments: Any, **options: Any) -> Any:
        whole = self._base
        part_of_weight = whole is not None and whole.is_leaf and whole.requires_grad
        with torch.no_grad() if part_of_weight else contextlib.nullcontext():
            return copy(self, *arguments, **options)

    return copy_


def _with_states(optimizer: Any) -> Any:
    """Return an Adam that has its states from the start, and a weight's count of steps in one place for good.

    So have the fused ones. A program that was written for those asks for states before it loads them, hands
    one count to all weights, and copies back the counts that it was given before.
    """
    import torch

    class WithStates(optimizer):  # type: ignore[misc]  # a class that is known when it runs
        def _keep_counts(self) -> None:
            counts = self.__dict__.setdefault("_counts", {})
            for weights in (weights for group in self.param_groups for weights in group["params"]):
                state, count = self.state[weights], counts.setdefault(weights, torch.zeros(()))
                if not state:
                    state |= {name: torch.zeros_like(weights.data) for name in ("exp_avg", "exp_avg_sq")}
                elif state["step"] is not count:
                    count.copy_(torch.as_tensor(state["step"]))
                state["step"] = count

        def state_dict(self) -> Any:
            self._keep_counts()
            return super().state_dict()

        def load_state_dict(self, state_dict: Any) -> None:
            super().load_state_dict(state_dict)
            self._keep_counts()

    WithStates.__name__ = WithStates.__qualname__ = optimizer.__name__
    return WithStates
