"""What megatron-core's layers, schedules, gradient buffers and optimizers need where there is no CUDA.

They name the device `cuda` in so many words. Each of the modules below gets a `torch` of its own in which
that device is the CPU; PyTorch itself stays as it is. Where there is CUDA, nothing here does anything.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

_MODULES = (
    "distributed.distributed_data_parallel",
    "distributed.param_and_grad_buffer",
    "optimizer.clip_grads",
    "optimizer.distrib_optimizer",
    "optimizer.grad_scaler",
    "optimizer.optimizer",
    "pipeline_parallel.p2p_communication",
    "pipeline_parallel.schedules",
    "tensor_parallel.layers",
    "tensor_parallel.mappings",
    "utils",
)
"""Modules of megatron.core that make tensors on the current CUDA device."""
_MAKERS = ("empty", "ones", "tensor", "zeros")


class _TorchOnCpu(ModuleType):
    """PyTorch with the CPU as its CUDA device."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.cuda = SimpleNamespace(current_device=lambda: "cpu", synchronize=lambda: None)
        for name in _MAKERS:
            setattr(self, name, _on_cpu(getattr(torch, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _on_cpu(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*arguments: Any, **options: Any) -> torch.Tensor:
        if options.get("device") == "cuda":
            options["device"] = "cpu"
        return make(*arguments, **options)

    return made


def prepare(device: torch.device) -> None:
    """Let megatron-core's modules, of these the ones that a trainer has imported, work on a CPU."""
    if device.type == "cuda":
        return
    on_cpu = _TorchOnCpu()
    for name in _MODULES:
        if module := sys.modules.get(f"megatron.core.{name}"):
            vars(module)["torch"] = on_cpu


@contextlib.contextmanager
def cuda_names(device: torch.device) -> Iterator[None]:
    """Let tensors be of the types that megatron-core's optimizers compare theirs with by name."""
    if device.type == "cuda":
        yield
        return
    plain = torch.Tensor.type

    def named(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        found = plain(tensor, *arguments, **options)
        return found.replace("torch.", "torch.cuda.", 1) if isinstance(found, str) else found

    torch.Tensor.type = named
    try:
        yield
    finally:
        torch.Tensor.type = plain
