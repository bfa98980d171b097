"""What the pieces of a model took on one machine: `partition: measured` deals layers to stages by it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from dsforge.base.canonical import dumps, sha256_text
from dsforge.records.figures import Count, Share, SomeSeconds
from dsforge.records.measured import measured_record

SCHEMA_VERSION = 1
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
class Conditions:
    """What was measured, by the recipe's values: times of another model or precision say nothing of it.

    `gpu`: the name in the recipe; what it was, the record's `device` says.
    """

    arch: str
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn_hidden: Count
    vocab: Count
    tied: bool
    seq_len: Count
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
    micro: Count
    repeats: Count
    embedding: PieceTime
    layer: PieceTime
    head: PieceTime
    kind: str = KIND
    schema_version: int = SCHEMA_VERSION

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
