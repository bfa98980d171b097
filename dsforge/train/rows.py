"""Which rows of a sequence a rank works on, where ranks share sequences out.

CP gives each rank a stretch from the front and its mirror from the back, so that under a causal mask all have
as much to do (Llama team 2024, "The Llama 3 herd of models", section 3.3.2; Megatron-LM does the same). TP
with sequence parallelism gives each shard an equal run of these between the matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of the rank that is the `part`-th of CP's `parts`, and of its `shards` the `shard`-th."""

    parts: int = 1
    part: int = 0
    shards: int = 1
    shard: int = 0

    def firsts(self, count: int) -> tuple[int, ...]:
        """Return where the equal stretches begin that make up the `count` rows of a part, front first."""
        if self.parts == 1:
            return (0,)
        stretch = count // 2
        return self.part * stretch, (2 * self.parts - 1 - self.part) * stretch

    def of_part(self, count: int, device: torch.device) -> torch.Tensor:
        """Return the numbers [count] of this part's rows, of which there are `count`."""
        return _numbers(self, count, device)

    def of_shard(self, count: int, device: torch.device) -> torch.Tensor:
        """Return the numbers [count] of this shard's rows, of which there are `count`."""
        first = self.shard * count
        return self.of_part(count * self.shards, device)[first : first + count]

    def in_order(self, gathered: torch.Tensor) -> torch.Tensor:
        """Return rows [s, ...] in the order of the sequence, given one part after the other."""
        if self.parts == 1:
            return gathered
        front, back = gathered.unflatten(0, (self.parts, 2, -1)).unbind(1)
        return torch.cat((front.flatten(0, 1), back.flip(0).flatten(0, 1)))


@cache
def _numbers(rows: Rows, count: int, device: torch.device) -> torch.Tensor:
    firsts = rows.firsts(count)
    stretch = count // len(firsts)
    return torch.cat([torch.arange(first, first + stretch, device=device) for first in firsts])
