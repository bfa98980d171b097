"""The parameters of a rank's pieces by global name."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from dsforge.train.layers import FinalNorm, Head, Layer, PositionEmbedding, WordEmbedding
from dsforge.train.parameters import ParameterSpec


def global_parameters(module: nn.Module, specs: dict[str, ParameterSpec]) -> dict[str, nn.Parameter]:
    """Return a rank's parameters by global name, each checked against what the plan says of it."""
    found: dict[str, nn.Parameter] = dict(_walk(module))
    assert len(found) == len(list(module.parameters())), "a parameter has no global name"
    for name, parameter in found.items():
        spec = specs[name]
        split = getattr(parameter, "tensor_model_parallel", False)
        assert not split or spec.partition_dim is not None, f"{name} is cut but should not be"
        if split:
            cut = (parameter.partition_dim, parameter.partition_stride)
            assert cut == (spec.partition_dim, spec.partition_stride), f"{name} is cut as {cut}"
    return found


def _walk(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for child in module.modules():
        if isinstance(child, WordEmbedding | PositionEmbedding | Layer | FinalNorm | Head):
            yield from child.global_parameters()
