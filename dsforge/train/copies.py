"""Which ranks hold copies of the same numbers, and whether the copies are equal, bit by bit.

A parameter's copies have one name, one shard and one part: replicas hold all of it, or ZeRO-3 and FSDP give
each a part; shards of TP hold what layers do not split; the first and the last stage hold a tied weight,
where the engine updates both alike. What crosses the ranks at each comparison are two numbers a piece of the
model, whatever the number of ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from dsforge.plan.types import Layout
from dsforge.train.digest import digest
from dsforge.train.held import Piece
from dsforge.train.world import coordinates

_NOBODYS = 2**63 - 1


class Key(NamedTuple):
    """What equal copies have in common; `shard` is -1 where layers do not split the parameter.

    `stage` is -1 where stages that hold one parameter hold the same.
    """

    name: str
    stage: int
    shard: int
    start: int
    length: int
    size: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The first parameter, by name, whose copies differ; `ranks` hold others than most, or all if none do.

    `most`: how many ranks hold what most hold, 0 where no value has more holders than every other. `more`: of
    how many pieces of the model copies differ besides.
    """

    name: str
    ranks: tuple[int, ...]
    most: int
    more: int


class Copies:
    """Compares what ranks hold; every rank must make the same calls in the same order."""

    def __init__(
        self, layout: Layout, rank: int, group: Any, *, split: frozenset[str], ties_bitwise: bool
    ) -> None:
        """Take this rank's number, a group of all ranks on the CPU, and which parameters layers split.

        `ties_bitwise`: copies on other stages are to be the same, too.
        """
        self._layout = layout
        self._rank = rank
        self._group = group
        self._split = split
        where = coordinates(rank, layout)
        self._shard, self._stage = where.shard, -1 if ties_bitwise else where.stage
        self._places: dict[Key, int] = {}
        self._names: list[str] = []
        self.compares = False
        """More than one rank holds some value; known once ranks have met."""
        self.dealt_out = 0
        """Of how many tensors ranks hold parts; known then, too."""

    @property
    def is_ready(self) -> bool:
        """Tell whether ranks know of each other's pieces."""
        return bool(self._places)

    def meet(self, pieces: Mapping[str, Piece]) -> str | None:
        """Tell the ranks of each other's pieces; return in words what is not there exactly once."""
        gathered: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(gathered, [self._key(*item) for item in pieces.items()], self._group)
        holders = Counter(key for keys in gathered for key in keys)
        self.compares = any(count > 1 and key.length for key, count in holders.items())
        self.dealt_out = in_parts(holders)
        ordered = sorted(holders)
        self._places = {key: place for place, key in enumerate(ordered)}
        self._names = [key.name for key in ordered]
        return not_dealt_out_once(gathered, self._layout)

    def first_difference(self, pieces: Mapping[str, Piece]) -> Difference | None:
        """Return the first parameter whose copies differ, the same on every rank; None for equal ones."""
        own = {self._places[self._key(*item)]: digest(item[1].values) for item in pieces.items()}
        places = list(own)
        found = torch.stack([number.cpu() for number in own.values()])
        # The largest is found as the smallest of the complements: one operation for both.
        table = torch.full((2, len(self._names)), _NOBODYS, dtype=torch.int64)
        table[0, places], table[1, places] = found, ~found
        dist.all_reduce(table, dist.ReduceOp.MIN, self._group)
        differing = (table[0] != ~table[1]).nonzero().flatten().tolist()
        if not differing:
            return None
        first = differing[0]
        numbers: list[Any] = [None] * dist.get_world_size(self._group)
        mine = int(own[first]) if first in own else None
        dist.all_gather_object(numbers, mine, self._group)
        ranks, most = minority(numbers)
        return Difference(self._names[first], ranks, most, len(differing) - 1)

    def _key(self, name: str, piece: Piece) -> Key:
        shard = self._shard if name in self._split else -1
        return Key(name, self._stage, shard, piece.start, len(piece.values), piece.size)


def in_parts(keys: Iterable[Key]) -> int:
    """Return how many tensors are held in parts."""
    return len({(key.name, key.stage) for key in keys if key.length < key.size})


def minority(numbers: Sequence[int | None]) -> tuple[tuple[int, ...], int]:
    """Return which holders have another number than most, and how many most are; None holds nothing.

    All holders and 0 where no number has more holders than every other one.
    """
    counts = Counter(number for number in numbers if number is not None).most_common()
    (common, most), (_, next_most) = counts[0], counts[1]
    if most == next_most:
        return tuple(rank for rank, number in enumerate(numbers) if number is not None), 0
    return tuple(rank for rank, number in enumerate(numbers) if number not in (None, common)), most


def not_dealt_out_once(keys: Sequence[Sequence[Key]], layout: Layout) -> str | None:
    """Return in words the first parameter whose replicas do not hold every element once; `keys` by rank.

    Replicas hold either all of it, each, or parts that lie side by side.
    """
    pieces: dict[tuple[str, int, int], set[Key]] = defaultdict(set)
    for rank, held in enumerate(keys):
        where = coordinates(rank, layout)
        for key in held:
            pieces[key.name, where.stage, where.shard].add(key)
    for (name, stage, _), parts in sorted(pieces.items()):
        end = 0
        for key in sorted(parts, key=lambda one: (one.start, one.length)):
            if key.start != end and key.length:
                how = "two replicas update" if key.start < end else "no replica updates"
                return f"{how} element {min(key.start, end)} of {name} on stage {stage}"
            end += key.length
        if end != (size := next(iter(parts)).size):
            return f"no replica updates element {end} of {name} on stage {stage}, which has {size}"
    return None
