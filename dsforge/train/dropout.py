"""Dropout whose masks depend on what is dropped alone, so that every layout drops the same entries.

Every entry has an address: seed, site, layer, sample, then its place in the sample. Each part of an address
picks an output of the stream that the parts before it seed; streams are SplitMix64 (Steele, Lea and Flood
2014, "Fast splittable pseudorandom number generators"), computed at any place at once. There is no state:
recomputation repeats a mask, a resumed run goes on with the next ones, and shards draw their own part only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import torch

from dsforge.train.rows import Rows

_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIXES = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))
_LAST_SHIFT = 31
"""SplitMix64's constants, as the signed numbers that torch calculates with."""
_WHOLE = Rows()


class Site(IntEnum):
    """Where a model drops; part of an address, so a number once given stays."""

    EMBEDDING = 0
    ATTENTION = 1
    AFTER_ATTENTION = 2
    AFTER_MLP = 3


def _folded(value: torch.Tensor, shift: int) -> torch.Tensor:
    # torch shifts the sign along; SplitMix64 shifts zeros in.
    return (value >> shift).bitwise_and_(2 ** (64 - shift) - 1).bitwise_xor_(value)


def outputs(seeds: torch.Tensor | int, places: torch.Tensor) -> torch.Tensor:
    """Return the outputs of SplitMix64 at places, counted from 0, of streams; all int64, broadcast."""
    value = seeds + (places + 1) * _GAMMA
    for shift, factor in _MIXES:
        value = _folded(value, shift).mul_(factor)
    return _folded(value, _LAST_SHIFT)


def draw(stream: torch.Tensor | int, address: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the numbers, uniform over int64, at the addresses that parts span by broadcasting."""
    number: torch.Tensor | int = stream
    for part in address:
        number = outputs(number, part)
    assert isinstance(number, torch.Tensor), "an address has parts"
    return number


@dataclass(frozen=True, slots=True)
class Dropout:
    """One site of one layer: zeroes a share `rate` of entries, scales the others by 1 / (1 - rate)."""

    rate: float
    stream: int
    """Seeded by run, site and layer; what is left of an address starts at the sample."""

    @classmethod
    def at(cls, rate: float, seed: int, site: Site, layer: int = 0) -> Dropout:
        """Return the dropout of a site in a layer counted from 0."""
        return cls(rate, int(draw(seed, [torch.tensor(site.value), torch.tensor(layer)])))

    def _kept(self, *address: torch.Tensor) -> torch.Tensor:
        return draw(self.stream, address) >= int(self.rate * 2**64) - 2**63

    def _drop(self, value: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        return torch.where(kept, value * (1 / (1 - self.rate)), 0.0)

    def hidden(
        self, value: torch.Tensor, samples: torch.Tensor, *, training: bool, rows: Rows = _WHOLE
    ) -> torch.Tensor:
        """Return hidden states [s, b, h] of samples [b], dropped where training; the same on every shard.

        `rows`: which of the sequence they are of.
        """
        if not (self.rate and training):
            return value
        length, _, width = value.shape
        numbers = rows.of_shard(length, value.device)[:, None, None]
        channels = torch.arange(width, device=value.device)
        return self._drop(value, self._kept(samples[:, None], numbers, channels))

    def chances(self, value: torch.Tensor, samples: torch.Tensor, first_head: int) -> torch.Tensor:
        """Return attention probabilities [b, heads, query, key] of a shard's heads, dropped.

        The queries are the last rows of those that the keys are of.
        """
        _, heads, queries, keys = value.shape
        key = torch.arange(keys, device=value.device)
        query = key[keys - queries :]
        # Head by head: a number has eight bytes, and all heads at once would fill a GPU.
        kept = [
            self._kept(samples[:, None, None], head, query[:, None], key)
            for head in torch.arange(first_head, first_head + heads, device=value.device)
        ]
        return self._drop(value, torch.stack(kept, dim=1))
