"""Ranks, their coordinates and their groups.

Order, the same in Megatron (`tp-cp-ep-dp-pp`) and in DeepSpeed's PipeModelDataParallelTopology
(pipe, data, model): TP is innermost, so that a tensor-parallel group sits on neighbouring ranks of
one host; then DP; stages are outermost. rank = (stage * DP + replica) * TP + shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Coordinates(NamedTuple):
    """Where a rank stands: its shard (TP), replica (DP) and stage (PP), each from 0."""

    tp: int
    dp: int
    pp: int


@dataclass(frozen=True, slots=True)
class Degrees:
    """How many ways each axis is split."""

    tp: int
    pp: int
    dp: int

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tp * self.pp * self.dp

    def coordinates(self, rank: int) -> Coordinates:
        """Return where a rank stands."""
        shard = rank % self.tp
        replica = rank // self.tp % self.dp
        return Coordinates(shard, replica, rank // (self.tp * self.dp))

    def rank(self, at: Coordinates) -> int:
        """Return the rank at coordinates."""
        return (at.pp * self.dp + at.dp) * self.tp + at.tp

    def groups(self, axis: str) -> Iterator[tuple[int, ...]]:
        """Yield the groups along `tp`, `dp` or `pp`, each in ascending rank order."""
        seen = set()
        for rank in range(self.world_size):
            fixed = self.coordinates(rank)._replace(**{axis: 0})
            if fixed not in seen:
                seen.add(fixed)
                size: int = getattr(self, axis)
                yield tuple(self.rank(fixed._replace(**{axis: index})) for index in range(size))
