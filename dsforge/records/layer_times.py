"""What the pieces of a model took on one machine: `partition: measured` deals layers to stages by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dsforge.base.canonical import dumps
from dsforge.records.typed import build

SCHEMA_VERSION = 2
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
class LayerTimes:
    """Times of the embedding, of one layer and of the head with its loss, each whole, on one process.

    `of`: what was measured, by name: times of another model or precision say nothing of it.
    """

    of: dict[str, Any]
    device: str
    trainer: str
    micro: int
    repeats: int
    embedding: PieceTime
    layer: PieceTime
    head: PieceTime
    kind: str = KIND
    schema_version: int = SCHEMA_VERSION

    def differing(self, own: Mapping[str, Any]) -> list[str]:
        """Return the names of what is not as in `own`."""
        return [name for name in {**own, **self.of} if self.of.get(name) != own.get(name)]

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
