"""What the times of a model's pieces depend on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dsforge.base.canonical import dumps, loads
from dsforge.layout.shape import Shape

_OF_NO_PIECE = ("name", "arch", "layers", "nominal_parameters", "times", "norm_eps", "rope_theta")
"""Fields of a shape that change no operation of a piece; a family is in its traits."""


def conditions(shape: Shape, *, seq_len: int, precision: str, recompute: str, gpu: str) -> dict[str, Any]:
    """Return, as JSON has them, the values under which times of one model are times of another.

    `gpu`: the name in the recipe; what it was, the record's `device` says.
    """
    model = {key: value for key, value in asdict(shape).items() if key not in _OF_NO_PIECE}
    model |= model.pop("traits")
    others = {"seq_len": seq_len, "precision": precision, "recompute": recompute, "gpu": gpu}
    told: dict[str, Any] = loads(dumps({**model, **others}))
    return told
