"""What the pieces of a model took on one machine: `partition: measured` deals layers to stages by it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from dsforge.base.canonical import dumps
from dsforge.records.typed import build

SCHEMA_VERSION = 1
KIND = "layer-times"
_NANOSECONDS = 1e9
_MOST_SECONDS = 1e6


@dataclass(frozen=True, slots=True)
class PieceTime:
    """Median seconds of one micro-batch. `spread`: its middle half, as a share of the median."""

    forward_seconds: float
    backward_seconds: float
    spread: float

    @property
    def seconds(self) -> float:
        """Forward and backward."""
        return self.forward_seconds + self.backward_seconds

    @property
    def weight(self) -> int:
        """The same in whole nanoseconds."""
        return round(self.seconds * _NANOSECONDS)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What was measured, by the recipe's values: times of another model or precision say nothing of it.

    `gpu`: the name in the recipe; what it was, the record's `device` says.
    """

    arch: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    vocab: int
    tied: bool
    seq_len: int
    precision: str
    recompute: str
    gpu: str

    @classmethod
    def of_model(cls, model: Any, **others: Any) -> Self:
        """Return them for a shape or a plan's model, and the values that are not the model's."""
        names = [one.name for one in fields(cls) if one.name not in others]
        return cls(**{name: getattr(model, name) for name in names}, **others)

    def differing(self, other: Conditions) -> list[str]:
        """Return the names of the fields in which two differ."""
        return [one.name for one in fields(self) if getattr(self, one.name) != getattr(other, one.name)]


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Times of the embedding, of one layer and of the head with its loss, each whole, on one process."""

    of: Conditions
    device: str
    trainer: str
    micro: int
    repeats: int
    embedding: PieceTime
    layer: PieceTime
    head: PieceTime
    kind: str = KIND
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """Return the text of the file."""
        return dumps(asdict(self))


def parse_layer_times(data: Any) -> LayerTimes:
    """Return the record in parsed JSON; ValueError, in words, when it is none or says what cannot be."""
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise ValueError("is not what `dsforge tune --layers` writes")
    if version != SCHEMA_VERSION:
        raise ValueError(f"has schema version {version}, this build reads {SCHEMA_VERSION}")
    try:
        times = build(LayerTimes, data)
    except TypeError as error:
        raise ValueError(f"is not whole: {error}") from None
    for name in ("embedding", "layer", "head"):
        piece: PieceTime = getattr(times, name)
        parts = (piece.forward_seconds, piece.backward_seconds)
        if not all(0 <= part < _MOST_SECONDS for part in parts) or (name == "layer" and piece.weight < 1):
            raise ValueError(f"says that the {name} takes {parts[0]:g} and {parts[1]:g} seconds")
    return times
