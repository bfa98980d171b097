"""Experts in files of Hugging Face's models: one by one, where a model has all of a layer in one tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dsforge.layout.shape import Shape

Tensor = tuple[str, tuple[int, ...]]
"""A tensor's name and shape."""
Pieces = tuple[tuple[str, ...], ...]
"""The names in files of what makes up a tensor: a row for each entry of it, joined by their own rows."""


@dataclass(frozen=True, slots=True)
class _Names:
    place: str
    gate: str
    up: str
    down: str


_MIXTRAL = _Names("block_sparse_moe", "w1", "w3", "w2")
_QWEN = _Names("mlp", "gate_proj", "up_proj", "down_proj")


def layers_with_experts(shape: Shape) -> tuple[int, ...]:
    """Return the layers of a shape that have experts."""
    experts = shape.experts
    return tuple(i for i in range(shape.layers) if experts is not None and i not in experts.dense_layers)


def expert_tensors(shape: Shape, layer: int) -> Iterator[Tensor]:
    """Yield the tensors in files of a layer's router and experts."""
    names, at, experts = _names(shape), _place(shape, layer), shape.experts
    assert experts is not None
    yield f"{at}.gate.weight", (experts.count, shape.hidden)
    for number in range(experts.count):
        for matrix in (names.gate, names.up):
            yield f"{at}.experts.{number}.{matrix}.weight", (experts.ffn_hidden, shape.hidden)
        yield f"{at}.experts.{number}.{names.down}.weight", (shape.hidden, experts.ffn_hidden)


def pieces_in_files(shape: Shape) -> dict[str, Pieces]:
    """Return the pieces of the tensors that files cut, or name, otherwise than the model, by its names."""
    names = _names(shape)
    pieces: dict[str, Pieces] = {}
    for layer in layers_with_experts(shape):
        assert shape.experts is not None
        model, file = f"model.layers.{layer}.mlp", _place(shape, layer)
        each = [f"{file}.experts.{number}" for number in range(shape.experts.count)]
        gated = tuple((f"{at}.{names.gate}.weight", f"{at}.{names.up}.weight") for at in each)
        pieces[f"{model}.experts.gate_up_proj"] = gated
        pieces[f"{model}.experts.down_proj"] = tuple((f"{at}.{names.down}.weight",) for at in each)
        pieces[f"{model}.gate.weight"] = ((f"{file}.gate.weight",),)
    return pieces


def _names(shape: Shape) -> _Names:
    return _QWEN if shape.traits.qk_norm else _MIXTRAL


def _place(shape: Shape, layer: int) -> str:
    return f"model.layers.{layer}.{_names(shape).place}"
