"""Ranks, their coordinates and their groups.

Order, the same in Megatron (`tp-cp-ep-dp-pp`) and in DeepSpeed's PipeModelDataParallelTopology
(pipe, data, model): TP is innermost, so that a tensor-parallel group sits on neighbouring ranks of
one host; then CP, then DP; stages are outermost.
rank = ((stage * DP + replica) * CP + part) * TP + shard.

Experts are dealt to neighbours within a stage, whatever their shard, part and replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Coordinates(NamedTuple):
    """Where a rank stands: its shard (TP), replica (DP), stage (PP) and part of a sequence (CP), from 0."""

    tp: int
    dp: int
    pp: int
    cp: int = 0


@dataclass(frozen=True, slots=True)
class Degrees:
    """How many ways each axis is split. EP is no axis: it divides TP x CP x DP."""

    tp: int
    pp: int
    dp: int
    cp: int = 1
    ep: int = 1

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tp * self.pp * self.dp * self.cp

    def coordinates(self, rank: int) -> Coordinates:
        """Return where a rank stands."""
        rest, shard = divmod(rank, self.tp)
        rest, part = divmod(rest, self.cp)
        stage, replica = divmod(rest, self.dp)
        return Coordinates(shard, replica, stage, part)

    def rank(self, at: Coordinates) -> int:
        """Return the rank at coordinates."""
        return ((at.pp * self.dp + at.dp) * self.cp + at.cp) * self.tp + at.tp

    def groups(self, axis: str) -> Iterator[tuple[int, ...]]:
        """Yield the groups along `tp`, `cp`, `dp`, `pp` or `ep`, each in ascending rank order."""
        if axis == "ep":
            yield from (tuple(range(first, first + self.ep)) for first in range(0, self.world_size, self.ep))
            return
        seen = set()
        for rank in range(self.world_size):
            fixed = self.coordinates(rank)._replace(**{axis: 0})
            if fixed not in seen:
                seen.add(fixed)
                size: int = getattr(self, axis)
                yield tuple(self.rank(fixed._replace(**{axis: index})) for index in range(size))
