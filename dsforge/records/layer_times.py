"""What the pieces of a model took on one machine: `partition: measured` deals layers to stages by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dsforge.base.canonical import dumps, sha256_text
from dsforge.records.figures import Count, Share, SomeSeconds, Told
from dsforge.records.measured import measured_record

SCHEMA_VERSION = 2
KIND = "layer-times"
_NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class PieceTime:
    """Median seconds of one micro-batch. `spread`: its middle half, as a share of the median."""

    forward_seconds: SomeSeconds
    backward_seconds: SomeSeconds
    spread: Share

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

    of: dict[str, Told]
    device: str
    trainer: str
    micro: Count
    repeats: Count
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

    @property
    def sha256(self) -> str:
        """Of what the file says, however it is spelt."""
        return sha256_text(self.to_json())


def parse_layer_times(data: Any) -> LayerTimes:
    """Return the record in parsed JSON; ValueError, in words, when it is none or says what cannot be."""
    times = measured_record(LayerTimes, data, KIND, SCHEMA_VERSION, "dsforge tune --layers")
    if times.layer.weight < 1:
        raise ValueError("says that a layer takes no time")
    return times
